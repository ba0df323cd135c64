"""One trajectory piece that a workflow hands over for training.

::

    tokens   | p p p p p | r r r e r r |      p prompt   r response   e not the model's own
             |<- P  ----->|<--- R ----->|      L = P + R
    logprobs              | x x x . x x |
    action_mask           | 1 1 1 0 1 1 |

The token ids are those that the engine produced. Text is never tokenised again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from trinity.common.value_checks import as_tensor, is_of, shortened, token_ids, whole_number
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import torch
    from torch import Tensor

__all__ = ["EID", "CustomField", "Experience", "group_by"]


@dataclass(slots=True, unsafe_hash=True)  # by its fields: set them before it is a key
class EID:
    """Where an experience comes from: batch / task / run / step.

    ``batch`` is the explore step, ``task`` the position of the task in it, ``run`` the repetition
    of the task, ``step`` the step inside the run (0 for a single-turn workflow). A workflow that
    makes several runs in one call numbers them: ``experience.eid.run = number``.
    """

    batch: int | str = 0
    task: int | str = 0
    run: int = 0
    step: int = 0
    suffix: str = ""

    @property
    def uid(self) -> str:
        """Return the unique id, ``batch/task/run/step[/suffix]``."""
        tail = f"/{self.suffix}" if self.suffix else ""
        return f"{self.batch}/{self.task}/{self.run}/{self.step}{tail}"

    @property
    def sid(self) -> str:
        """Return the id that the same step of all runs of a task share."""
        return f"{self.batch}/{self.task}/{self.step}"

    @property
    def rid(self) -> str:
        """Return the id of the run."""
        return f"{self.batch}/{self.task}/{self.run}"

    @property
    def tid(self) -> str:
        """Return the id of the task, which is the group that advantages compare in."""
        return f"{self.batch}/{self.task}"

    def with_step(self, step: int) -> EID:
        """Return the same id at another step of the run."""
        return replace(self, step=step)

    def to_dict(self) -> dict[str, Any]:
        """Return its parts by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        return self.uid

    def __reduce__(self) -> tuple[object, ...]:
        return EID, (self.batch, self.task, self.run, self.step, self.suffix)


@dataclass(frozen=True)
class CustomField:
    """An entry of ``info`` that the batch of the trainer gets as a field, ``[B]``.

    Attributes:
        source_field: its name in ``info``; every experience of the batch has it.
        destination_field: its name in the batch.
        data_type: of the field.
    """

    source_field: str
    destination_field: str
    data_type: torch.dtype


@dataclass(kw_only=True)
class Experience:
    """What a workflow returns for one (part of a) trajectory.

    Lists are accepted wherever a tensor is named; they become tensors at construction.

    Attributes:
        tokens: ``[L]`` int64, prompt and response; the engine's own ids.
        prompt_length: ``P``, 1 <= P <= L; the first response token is ``tokens[P]``.
        logprobs: ``[R]`` float32, natural log-probability of each response token under the full
            softmax at the sampling temperature; 0 where the model did not sample the token.
        action_mask: ``[R]`` bool, True where the model itself chose the token; nothing else is
            trained. Not given: all True, or all False where ``truncate_status`` says that the
            prompt was cut; None for a DPO pair. It belongs to this experience alone: edit it in
            place, or set another. With other tokens give their mask, or None for one made anew:
            ``dataclasses.replace(experience, tokens=..., action_mask=None)``.
        reward: the reward of this piece; None if there is none (SFT data).
        token_level_reward: ``[R]`` float32, overrides ``reward`` where rewards are per token.
        advantages: ``[R]`` float32, written by an advantage function.
        returns: ``[R]`` float32, written by an advantage function.
        temperature: the sampling temperature that ``logprobs`` belong to.
        chosen: ``[C]`` int64 response ids of the preferred answer (DPO).
        rejected: ``[J]`` int64 response ids of the other answer (DPO).
        truncate_status: ``prompt_truncated``, ``response_truncated``, or None: nothing was cut. It
            chooses the mask only where none is given at construction; set afterwards it is a label,
            for replies before the cut may be trained on (``action_mask.zero_()`` masks all).
        info: free data of the workflow and the runtime (``model_version``, ``use_count``, ...).
        metrics: numbers that are logged, averaged over the step.
        custom_fields: which entries of ``info`` a loss may ask for by name.

    Raises:
        TypeError: token ids or ``prompt_length`` are no whole numbers.
        ValueError: lengths disagree, or ``prompt_length`` is out of range.
    """

    tokens: Tensor
    prompt_length: int = 1
    eid: EID = field(default_factory=EID)
    logprobs: Tensor | None = None
    action_mask: Tensor | None = None
    reward: float | None = None
    token_level_reward: Tensor | None = None
    advantages: Tensor | None = None
    returns: Tensor | None = None
    temperature: float = 1.0
    truncate_status: str | None = None
    info: dict[str, Any] = field(default_factory=dict)  # Any: the workflow's own data
    metrics: dict[str, float] = field(default_factory=dict)
    prompt_text: str | None = None
    response_text: str | None = None
    messages: list[dict[str, Any]] | None = None  # Any: the chat format of the workflow
    tools: list[dict[str, Any]] | None = None
    chosen: Tensor | None = None
    rejected: Tensor | None = None
    chosen_messages: list[dict[str, Any]] | None = None
    rejected_messages: list[dict[str, Any]] | None = None
    teacher_logprobs: Tensor | None = None
    custom_fields: list[CustomField] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._to_tensors()
        self.prompt_length = whole_number(self.prompt_length)
        self._check_lengths()
        self._own_mask()

    @property
    def response_length(self) -> int:
        """Return ``R``, the number of tokens after the prompt."""
        return self.tokens.shape[0] - self.prompt_length

    @property
    def is_preference_pair(self) -> bool:
        """Return whether this is a DPO pair."""
        return self.chosen is not None and self.rejected is not None

    @property
    def experience_type(self) -> Literal["single_turn", "multi_turn", "dpo"]:
        """Return its kind: a preference pair, tokens of others in the response, or one reply."""
        if self.is_preference_pair:
            return "dpo"
        has_others = self.action_mask is not None and not bool(self.action_mask.all())
        return "multi_turn" if has_others else "single_turn"

    def to_dict(self, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Return plain Python values, as json can hold them; of other objects in info the text.

        Args:
            without: fields that are left out.
        """
        names = [name for name in _NAMES if name != "custom_fields" and name not in without]
        row = {name: _plain(getattr(self, name)) for name in names}
        if self.custom_fields:
            row["custom_fields"] = [
                {**vars(one), "data_type": str(one.data_type)} for one in self.custom_fields
            ]
        return row

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Experience:
        """Return the experience that :meth:`to_dict` wrote."""
        values = {name: value for name, value in row.items() if name in _NAMES}
        if isinstance(values.get("eid"), dict):
            values["eid"] = EID(**values["eid"])
        values["custom_fields"] = [_custom_field(one) for one in values.get("custom_fields") or ()]
        return cls(**values)

    def serialize(self) -> bytes:
        """Return the experience as bytes; see :meth:`serialize_many`."""
        return self.serialize_many([self])

    @classmethod
    def deserialize(cls, data: bytes) -> Experience:
        """Return the experience of :meth:`serialize`.

        Raises:
            DataError: the bytes are not those of one experience.
        """
        experiences = cls.deserialize_many(data)
        if len(experiences) != 1:
            raise DataError(
                f"these bytes hold {len(experiences)} experiences. Use Experience.deserialize_many."
            )
        return experiences[0]

    @classmethod
    def serialize_many(cls, experiences: Sequence[Experience]) -> bytes:
        """Return experiences as bytes that hold no code; of objects in ``info`` the text."""
        from trinity.common.codec import to_bytes

        return to_bytes(experiences)

    @classmethod
    def deserialize_many(cls, data: bytes) -> list[Experience]:
        """Return the experiences of :meth:`serialize_many`; nothing in the bytes is executed.

        Raises:
            DataError: the bytes are damaged, of another version, or of another format.
        """
        from trinity.common.codec import from_bytes

        return from_bytes(data, make=cls.from_dict)

    def _to_tensors(self) -> None:
        import torch

        for name in ("tokens", "chosen", "rejected"):
            ids: Sequence[int] | Tensor | None = getattr(self, name)
            if ids is not None:
                setattr(self, name, token_ids(ids, name=name))
        kinds = {
            "action_mask": torch.bool,
            "logprobs": torch.float32,
            "token_level_reward": torch.float32,
            "advantages": torch.float32,
            "returns": torch.float32,
            "teacher_logprobs": torch.float32,
        }
        for name, dtype in kinds.items():
            value: Any = getattr(self, name)  # Any: of a user's own code
            if value is not None and not is_of(value, dtype):
                setattr(self, name, as_tensor(value, dtype))

    def _own_mask(self) -> None:
        """Have a mask that no other experience holds: what a workflow masks in one stays there."""
        import torch

        if self.action_mask is not None:
            self.action_mask = self.action_mask.clone()
        elif not self.is_preference_pair:
            is_own = self.truncate_status != "prompt_truncated"
            self.action_mask = torch.full((self.response_length,), is_own, dtype=torch.bool)

    def _check_lengths(self) -> None:
        total = self.tokens.shape[0]
        if self.is_preference_pair:
            if not 0 < self.prompt_length <= total:
                raise ValueError(
                    f"prompt_length is {self.prompt_length}, but there are {total} tokens"
                )
            return
        if not 0 < self.prompt_length <= total:
            raise ValueError(
                f"prompt_length is {self.prompt_length}, but there are {total} tokens; "
                f"it must lie between 1 and the number of tokens"
            )
        names = ("action_mask", "logprobs", "token_level_reward", "advantages", "returns")
        wanted = (self.response_length,)
        for name in names:
            value = getattr(self, name)
            if value is None or value.shape == wanted:
                continue
            if value.dim() != 1:
                raise ValueError(
                    f"{name} has the shape {list(value.shape)}; it must have one entry for each "
                    f"of the {self.response_length} tokens of the response"
                )
            raise ValueError(
                f"{name} has {len(value)} entries, but the response has "
                f"{self.response_length} tokens ({total} tokens less a prompt of "
                f"{self.prompt_length}){_REPLACED if name == 'action_mask' else ''}"
            )


def group_by(
    experiences: Iterable[Experience], id_type: Literal["task", "run", "step"]
) -> dict[str, list[Experience]]:
    """Return the experiences of each task, of each run, or of each step of a task.

    Raises:
        ValueError: no such kind of id.
    """
    names = {"task": "tid", "run": "rid", "step": "sid"}
    if id_type not in names:
        raise ValueError(f"id_type is {id_type!r}. Choices: {', '.join(map(repr, names))}.")
    groups: dict[str, list[Experience]] = {}
    for experience in experiences:
        groups.setdefault(getattr(experience.eid, names[id_type]), []).append(experience)
    return groups


_REPLACED = (
    ". Where an experience is made again with other tokens: give their mask, or action_mask=None "
    "where the model itself chose all of the response"
)
_NAMES = tuple(field.name for field in fields(Experience))


def _custom_field(given: CustomField | dict[str, Any]) -> CustomField:
    """Return the field of what :meth:`Experience.to_dict` wrote.

    Raises:
        ValueError: its type is none of torch's.
    """
    if isinstance(given, CustomField):
        return given
    import torch

    name = str(given["data_type"]).removeprefix("torch.")
    data_type = getattr(torch, name, None)
    if not isinstance(data_type, torch.dtype):
        raise ValueError(f"the type of the custom field {given['source_field']!r} is {name!r}")
    return CustomField(given["source_field"], given["destination_field"], data_type)


def _plain(value: object) -> object:
    if value is None or isinstance(value, (float, int, str)):
        return value
    if isinstance(value, EID):
        return {name: getattr(value, name) for name in EID.__slots__}
    if hasattr(value, "tolist"):  # a tensor, an array, a number of numpy
        return value.tolist()
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(part) for part in value]
    return shortened(str(value))  # in info: what a workflow noted
