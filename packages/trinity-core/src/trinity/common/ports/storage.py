"""The buffer between exploring and training.

explorer --ExperienceSink--> storage --ExperienceSource--> strategy --> trainer

What a strategy reads from is a :class:`StrategySource`: the runtime stands in for what the storage
itself lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from trinity.common.ports.state import Stateful

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience

__all__ = [
    "Counted",
    "DropsOlder",
    "ExperienceSink",
    "ExperienceSource",
    "GivesAgain",
    "GivesGroups",
    "KeepsLedger",
    "OwnOrder",
    "Storage",
    "StorageUse",
    "StrategySource",
    "TakesBack",
    "Tallied",
    "Waiting",
]


class ExperienceSink(Protocol):
    """Takes experiences from the explorer."""

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store the experiences; waits while the buffer is full.

        Raises:
            BufferClosedError: the buffer was closed.
        """

    def close(self) -> None:
        """Say that nothing more comes; what is stored can still be read."""


class ExperienceSource(Protocol):
    """Gives experiences to a sample strategy."""

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return ``count`` experiences, fewer only when the writers closed.

        Raises:
            TimeoutError: fewer than ``count`` were there in time; none of them is lost.
            StopIteration: the writers closed and nothing is left.
        """

    def available(self) -> int:
        """Return how many experiences can be read without waiting."""


class Storage(ExperienceSink, ExperienceSource, Protocol):
    """The experience buffer of a run; any number of threads may write and read.

    It is made with ``config``, the buffer's section, and with those of ``path``, ``chat_format``,
    ``total_epochs`` and ``use`` that its constructor names.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageUse:
    """Whose run writes to a storage, or reads from it."""

    run: str = ""  # its folders below checkpoint_root_dir
    id: str = ""  # of its run directory, where a ledger must know it from others of that name
    side: Literal["both", "explore", "train"] = "both"  # of the run that is in this process
    owner: str = ""  # explorer.name where explorers are separate runs; "": the run has one
    is_offline: bool = False  # whether it trains what is there, and nobody writes beside it


class KeepsLedger(Protocol):
    """Ability ``ledger`` of a storage: it notes which optimizer step read what, for good.

    Its state has ``trained`` and ``waiting``, which the runtime sets to the optimizer steps of a
    checkpoint and to the number of experiences that waited at it, or where groups are in flight to
    the names of the groups that did. Without it, ``history.jsonl`` alone tells.
    """

    def read_for(self, step: int) -> None:
        """Note which optimizer step reads from now on."""

    def begin_anew(self) -> None:
        """Forget what a run wrote that begins from its start."""

    def forget(self, before: int) -> None:
        """Note that no run goes back before this step: what it trained need not be read again."""


class GivesGroups(Protocol):
    """Ability ``groups`` of a storage that has ``ledger``: it is read by the names of groups.

    A group is the experiences of one task; its name is ``batch/task`` of their ids. Without it,
    ``sync_style: fully_async`` keeps them in memory, if there is ``waiting``.
    """

    def count_groups(self, names: Sequence[str]) -> list[int]:
        """Return how many experiences wait of each of these groups."""

    def read_groups(self, names: Sequence[str]) -> list[Experience]:
        """Return what waits of these groups, one after the other, as the step has it."""


class Waiting(Protocol):
    """Ability ``waiting`` of a storage: a checkpoint holds what nobody has read yet.

    A resumed run gets it back by ``write``, after ``load_state_dict`` where there is a state. A
    storage that keeps its experiences by itself, as a file does, has ``state`` instead. Without
    both, a run says that it cannot go on from a checkpoint at which experiences waited, and does
    not.
    """

    def waiting(self) -> Sequence[Experience]:
        """Return what was written and not read, in order, without taking it."""


class TakesBack(Protocol):
    """Ability ``put_back`` of a storage.

    Without it, the runtime keeps what was given back and gives it out before anything else.
    """

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Store what was read last and not used in its old place."""


class StrategySource(ExperienceSource, TakesBack, Stateful, Protocol):
    """What a sample strategy reads from."""


class DropsOlder(Protocol):
    """Ability ``drop_older`` of a storage: it is told which weights are too old before a read.

    Without it, only ``read`` is told, by its ``min_model_version``.
    """

    def drop_older(self, min_model_version: int) -> None:
        """Drop what older models made."""


class Tallied(Protocol):
    """Ability ``counts`` of a storage. Without it, the metrics ``buffer/...`` are left out."""

    def counts(self) -> Mapping[str, int]:
        """Return experiences by what became of them."""


class GivesAgain(Protocol):
    """Ability ``gives_again`` of a storage. Without it, each experience is read once."""

    @property
    def gives_again(self) -> bool:
        """Return whether experiences that were read can be read again."""


class OwnOrder(Protocol):
    """Ability ``own_order`` of a storage. Without it, what was written first is read first."""

    @property
    def order(self) -> str:
        """Return in a few words what is read first."""


class Counted(Protocol):
    """Ability ``length`` of a storage that was filled before the run.

    Without it, mode ``train`` needs ``trainer.total_steps`` or ``buffer.total_steps``.
    """

    def __len__(self) -> int:
        """Return how many experiences all epochs give."""
