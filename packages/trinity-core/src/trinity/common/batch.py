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

__all__ = ["ALIASES", "INFO_FIELDS", "ExperienceBatch", "Fields"]

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

#: fields of a batch that mixes own rows with an expert's: name, entry of info, type
INFO_FIELDS = (("expert_mask", "is_expert", "torch.bool"), ("step", "step", "torch.int32"))


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

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or what stands for one that is not there."""
        return self._values.get(ALIASES.get(name, name), default)

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

    ===================  ==========================================  ===============
    field (ours)         also known as                               shape, type
    ===================  ==========================================  ===============
    responses                                                        [B, R] int64
    action_mask          response_mask                               [B, R] bool
    old_logprob          old_log_probs, rollout_log_probs, logprobs  [B, R] float32
    rewards              reward                                      [B] float32
    token_level_rewards  token_level_scores, token_level_reward      [B, R] float32
    advantages, returns                                              [B, R] float32
    ref_logprob          ref_log_prob                                [B, R] float32
    teacher_logprobs                                                 [B, R] float32
    expert_mask, step                                                [B] bool, int32
    uid (not a tensor)   group                                       B group ids
    rid (not a tensor)   run                                         B run ids
    step (not a tensor)                                              B step numbers
    ===================  ==========================================  ===============

    ``expert_mask`` and ``step`` are those of rows that the sample strategy ``mix`` marked.
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
        import torch

        if not self.experiences:
            return []
        lengths = [experience.response_length for experience in self.experiences]
        for name in ("advantages", "returns", "action_mask"):
            if name not in self.batch:
                continue
            values_BR: Tensor = self.batch[name]
            flat = values_BR[_is_response(lengths, width=values_BR.shape[1])]
            old = [getattr(experience, name) for experience in self.experiences]
            if all(own is not None for own in old) and torch.equal(torch.cat(old), flat):
                continue
            for experience, own in zip(self.experiences, torch.split(flat, lengths), strict=True):
                setattr(experience, name, own.clone())  # a view would be pickled with all rows
        return self.experiences


def _padded_fields(experiences: Sequence[Experience], *, pad_token_id: int) -> dict[str, Any]:
    import torch

    lengths = [exp.response_length for exp in experiences]
    is_response_BR = _is_response(lengths, width=max(lengths))
    responses = [exp.tokens[exp.prompt_length :] for exp in experiences]
    fields: dict[str, Any] = {
        "responses": _pad(responses, is_response_BR, value=pad_token_id),
        "action_mask": _action_mask(experiences, is_response_BR),
        "rewards": torch.tensor([exp.reward or 0.0 for exp in experiences]),
    }
    fields["token_level_rewards"] = _token_rewards(experiences, fields)
    for source in ("logprobs", "advantages", "returns", "teacher_logprobs"):
        values = _all_or_none([getattr(exp, source) for exp in experiences], name=source)
        if values is not None:
            name = "old_logprob" if source == "logprobs" else source
            fields[name] = _pad(values, is_response_BR)
    return fields | _info_fields(experiences)


def _info_fields(experiences: Sequence[Experience]) -> dict[str, Any]:
    """Return the entries of ``info`` that are fields.

    Whose each row is and which step it is for, where the sample strategy said so, and what the
    experiences' ``custom_fields`` name.
    """
    import torch

    own = {
        field.destination_field: torch.tensor(
            [exp.info[field.source_field] for exp in experiences], dtype=field.data_type
        )
        for field in experiences[0].custom_fields
    }
    if not all("is_expert" in exp.info for exp in experiences):
        return own
    kinds = {"torch.bool": torch.bool, "torch.int32": torch.int32}
    marks = {
        name: torch.tensor([exp.info[entry] for exp in experiences], dtype=kinds[kind])
        for name, entry, kind in INFO_FIELDS
    }
    return marks | own


def _action_mask(experiences: Sequence[Experience], is_response_BR: Tensor) -> Tensor:
    masks = [exp.action_mask for exp in experiences]
    given = [mask for mask in masks if mask is not None]
    if len(given) == len(masks):
        return _pad(given, is_response_BR)
    mask_BR = is_response_BR.clone()
    for row, mask in enumerate(masks):
        if mask is not None:
            mask_BR[row, : len(mask)] = mask
    return mask_BR


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


def _all_or_none(values: list[Tensor | None], *, name: str) -> list[Tensor] | None:
    present = [value for value in values if value is not None]
    if not present:
        return None
    if len(present) != len(values):
        missing = sum(value is None for value in values)
        raise ValueError(
            f"{missing} of {len(values)} experiences have no {name}; all or none must have it"
        )
    return present


def _is_response(lengths: Sequence[int], *, width: int) -> Tensor:
    """Return ``[B, R]``, True where a row has a token."""
    import torch

    return torch.arange(width) < torch.tensor(lengths)[:, None]


def _pad(rows: list[Tensor], is_response_BR: Tensor, *, value: int = 0) -> Tensor:
    """Return ``[B, R]``, all rows copied in one call."""
    import torch

    flat = torch.cat(rows)
    padded_BR = flat.new_full(is_response_BR.shape, value)
    return padded_BR.masked_scatter_(is_response_BR, flat)
