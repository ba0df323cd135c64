"""Which experiences this process has handed over: each is trained on once.

An experience that a workflow returns again, or that stands in a list twice, would be trained twice
under whichever id was written last. Tensors that two experiences share would change together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from trinity.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from trinity.common.experience import Experience

Key = TypeVar("Key", int, tuple[int, int, int])

REMEDY = "Return a separate experience for each rollout, for example copy.deepcopy()."
TENSORS = (  # that a later step may change in place
    "action_mask",
    "logprobs",
    "token_level_reward",
    "teacher_logprobs",
    "advantages",
    "returns",
)


class DuplicateCheck:
    """Remembers what was returned, as long as somebody holds it."""

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[int, Experience] = WeakValueDictionary()

    def check(self, experiences: Sequence[Experience]) -> None:
        """Refuse what was returned before, and what stands there twice.

        Raises:
            WorkflowError: the message says which.
        """
        seen: dict[int, int] = {}
        for place, experience in enumerate(experiences):
            if self._alive.get(id(experience)) is experience:
                raise WorkflowError(
                    f"experience {place} is the same object that an earlier call returned, for "
                    f"rollout {experience.eid.rid}. {REMEDY}"
                )
            _refuse_twice(seen, id(experience), place)

    def add(self, experiences: Sequence[Experience]) -> None:
        """Take note of what goes on to be trained."""
        for experience in experiences:
            self._alive[id(experience)] = experience


def check_rows(experiences: Sequence[Experience]) -> None:
    """Refuse two experiences whose tokens are one piece of memory: they are one row.

    Raises:
        WorkflowError: the message says which.
    """
    seen: dict[tuple[int, int, int], int] = {}
    for place, experience in enumerate(experiences):
        if not experience.is_preference_pair:
            _refuse_twice(seen, _memory(experience), place)


def unshared(experiences: Sequence[Experience]) -> None:
    """Give each experience tensors of its own, where two of a list lie in one memory."""
    if len(experiences) < 2:
        return
    taken: set[int] = set()
    for experience in experiences:
        for name, value in _tensors(experience):
            where = value.untyped_storage().data_ptr()
            if where in taken:
                setattr(experience, name, value.clone())
            taken.add(where)


def _refuse_twice(seen: dict[Key, int], key: Key, place: int) -> None:
    first = seen.setdefault(key, place)
    if first != place:
        raise WorkflowError(f"experiences {first} and {place} are the same object. {REMEDY}")


def _memory(experience: Experience) -> tuple[int, int, int]:
    """Return where the tokens lie, and which of them are the response."""
    tokens = experience.tokens
    return tokens.data_ptr(), len(tokens), experience.prompt_length


def _tensors(experience: Experience) -> Iterator[tuple[str, Tensor]]:
    for name in TENSORS:
        value: Tensor | None = getattr(experience, name)
        if value is not None and value.numel():
            yield name, value


HANDED_OVER = DuplicateCheck()  # one for the process: runners of one class share its workflows
