"""A batch of experiences as the maths sees it.

B rows (one Experience each), R the longest response of the batch; responses start at column 0.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from trinity.errors import unknown_name

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.experience import Experience

__all__ = ["ALIASES", "ExperienceBatch", "Fields"]

ALIASES = {
    "old_log_probs": "old_logprob",
    "rollout_log_probs": "old_logprob",
    "logprobs": "old_logprob",
    "ref_log_prob": "ref_logprob",
    "log_prob": "logprob",
    "response_mask": "action_mask",
    "token_level_reward": "token_level_rewards",
    "token_level_scores": "token_level_rewards",
    "reward": "rewards",
    "group": "uid",
    "run": "rid",
}


class Fields(MutableMapping[str, Any]):
    """A mapping that knows a field by our name and by verl's (Any: tensors, or lists of B)."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        for name, value in (values or {}).items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        own = ALIASES.get(name, name)
        if own not in self._values:
            raise KeyError(unknown_name("field", name, self._values))
        return self._values[own]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[ALIASES.get(name, name)] = value

    def __delitem__(self, name: str) -> None:
        del self._values[ALIASES.get(name, name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and ALIASES.get(name, name) in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class ExperienceBatch:
    """Padded fields of ``B`` experiences, in the shape of the tutorials' (verl's) DataProto.

    ``batch["advantages"]`` and ``batch.batch["advantages"]`` are the same tensor.

    | field (ours)          | also known as                                 | shape, type        |
    |-----------------------|-----------------------------------------------|--------------------|
    | `responses`           |                                               | [B, R] int64       |
    | `action_mask`         | `response_mask`                               | [B, R] bool        |
    | `old_logprob`         | `old_log_probs`, `rollout_log_probs`, `logprobs` | [B, R] float32  |
    | `rewards`             | `reward`                                      | [B] float32        |
    | `token_level_rewards` | `token_level_scores`, `token_level_reward`    | [B, R] float32     |
    | `advantages`, `returns` |                                             | [B, R] float32     |
    | `ref_logprob`         | `ref_log_prob`                                | [B, R] float32     |
    | `uid` (not a tensor)  | `group`                                       | B group ids        |
    | `rid` (not a tensor)  | `run`                                         | B run ids          |
    | `step` (not a tensor) |                                               | B step numbers     |

    ``token_level_rewards`` holds each row's reward at its last action token, unless the experience
    brought rewards per token. A field is absent when no experience of the batch has it.

    Attributes:
        batch: the tensors by name.
        non_tensor_batch: lists with one entry a row.
        meta_info: values that hold for the whole batch.
        experiences: the rows, in order.
    """

    def __init__(
        self,
        experiences: Sequence[Experience],
        *,
        fields: dict[str, Any] | None = None,
        non_tensor_fields: dict[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
    ) -> None:
        self.experiences = list(experiences)
        self.batch = Fields(fields)
        self.non_tensor_batch = Fields(non_tensor_fields)
        self.meta_info = dict(meta_info or {})

    @classmethod
    def from_experiences(
        cls, experiences: Sequence[Experience], *, pad_token_id: int = 0
    ) -> ExperienceBatch:
        """Return the batch of these rows, padded to the longest response.

        Raises:
            ValueError: there are no experiences, or some have a field that others lack.
        """
        if not experiences:
            raise ValueError("a batch needs at least one experience")
        fields = _padded_fields(experiences, pad_token_id=pad_token_id)
        ids = {
            "uid": [exp.eid.tid for exp in experiences],
            "rid": [exp.eid.rid for exp in experiences],
            "step": [exp.eid.step for exp in experiences],
        }
        return cls(experiences, fields=fields, non_tensor_fields=ids)

    def __len__(self) -> int:
        return len(self.experiences)

    def __contains__(self, name: str) -> bool:
        return name in self.batch or name in self.non_tensor_batch

    def __getitem__(self, name: str) -> Any:
        return self.non_tensor_batch[name] if name in self.non_tensor_batch else self.batch[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.batch[name] = value

    def groups(self) -> dict[str, list[int]]:
        """Return the row numbers of each task's group, groups in first-seen order."""
        rows: dict[str, list[int]] = {}
        for row, uid in enumerate(self.non_tensor_batch["uid"]):
            rows.setdefault(uid, []).append(row)
        return rows

    def select(self, rows: Sequence[int]) -> ExperienceBatch:
        """Return the batch of these rows, in this order; columns stay padded as they are."""
        chosen = list(rows)
        return ExperienceBatch(
            [self.experiences[row] for row in chosen],
            fields={name: value[chosen] for name, value in self.batch.items()},
            non_tensor_fields={
                name: [values[row] for row in chosen]
                for name, values in self.non_tensor_batch.items()
            },
            meta_info=self.meta_info,
        )

    def write_back(self) -> list[Experience]:
        """Copy advantages, returns and the action mask of each row into its experience."""
        for row, experience in enumerate(self.experiences):
            length = experience.response_length
            for name in ("advantages", "returns", "action_mask"):
                if name in self.batch:
                    setattr(experience, name, self.batch[name][row, :length].clone())
        return self.experiences


def _padded_fields(experiences: Sequence[Experience], *, pad_token_id: int) -> dict[str, Any]:
    import torch

    masks = [
        torch.ones(exp.response_length, dtype=torch.bool)
        if exp.action_mask is None
        else exp.action_mask
        for exp in experiences
    ]
    fields: dict[str, Any] = {
        "responses": _pad([e.tokens[e.prompt_length :] for e in experiences], value=pad_token_id),
        "action_mask": _pad(masks, value=0),
        "rewards": torch.tensor([exp.reward or 0.0 for exp in experiences]),
    }
    fields["token_level_rewards"] = _token_rewards(experiences, fields)
    for source, name in (("logprobs", "old_logprob"), ("advantages",) * 2, ("returns",) * 2):
        padded = _pad_optional([getattr(exp, source) for exp in experiences], name=source)
        if padded is not None:
            fields[name] = padded
    return fields


def _token_rewards(experiences: Sequence[Experience], fields: dict[str, Any]) -> Tensor:
    """Return each row's rewards per token, or its reward at the last token the model chose."""
    import torch

    mask_BR: Tensor = fields["action_mask"]
    rewards_B: Tensor = fields["rewards"]
    if mask_BR.shape[1] == 0:
        return mask_BR.float()
    places_R = torch.arange(1, mask_BR.shape[1] + 1)
    last_B = (mask_BR * places_R).amax(dim=1)  # counted from 1; 0: no token of the model's own
    rewards_BR = torch.where(places_R == last_B[:, None], rewards_B[:, None], 0.0)
    for row, exp in enumerate(experiences):
        if exp.token_level_reward is not None:
            rewards_BR[row] = 0.0
            rewards_BR[row, : exp.response_length] = exp.token_level_reward
    return rewards_BR


def _pad_optional(values: list[Tensor | None], *, name: str) -> Tensor | None:
    present = [value for value in values if value is not None]
    if not present:
        return None
    if len(present) != len(values):
        missing = sum(value is None for value in values)
        raise ValueError(
            f"{missing} of {len(values)} experiences have no {name}; all or none must have it"
        )
    return _pad(present, value=0)


def _pad(rows: list[Tensor], *, value: int) -> Tensor:
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence(rows, batch_first=True, padding_value=value)
