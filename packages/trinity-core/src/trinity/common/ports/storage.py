"""The buffer between exploring and training.

explorer --ExperienceSink--> storage --StrategySource--> strategy --> trainer

What a strategy reads from is a :class:`StrategySource`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trinity.common.experience import Experience


class ExperienceSink(Protocol):
    """Takes experiences from the explorer."""

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store the experiences; waits while the buffer is full.

        Raises:
            BufferClosedError: the buffer was closed.
        """

    def close(self) -> None:
        """Say that nothing more comes; what is stored can still be read."""


class Storage(ABC):
    """The experience buffer of a run; any number of threads may write and read.

    It is made with ``config``, the buffer's section, and with those of ``path``, ``chat_format``,
    ``total_epochs`` and ``use`` that its constructor names.

    One that was filled before the run has ``__len__``: how many experiences all epochs give.

    A resumed run writes what ``waiting`` gave, after ``load_state_dict``. A storage that keeps its
    experiences by itself, as a file does, has a state instead.

    A ledger has ``read_for``, ``begin_anew`` and ``forget``. Its state has ``trained`` and
    ``waiting``, which the runtime sets to the optimizer steps of a checkpoint and to the number of
    experiences that waited at it, or where groups are in flight to the names of those groups.
    """

    is_in_order: bool = False  # reads, and ``waiting``, come in the order of writes
    gives_again: bool = False  # experiences that were read can be read again
    order: str = ""  # what is read first, in a few words; "": what was written first

    @abstractmethod
    def write(self, experiences: Sequence[Experience]) -> None:
        """Store the experiences; waits while the buffer is full.

        Raises:
            BufferClosedError: the buffer was closed.
        """

    @abstractmethod
    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return ``count`` experiences, fewer only when the writers closed.

        Raises:
            TimeoutError: fewer than ``count`` were there in time; none of them is lost.
            StopIteration: the writers closed and nothing is left.
        """

    @abstractmethod
    def available(self) -> int:
        """Return how many experiences can be read without waiting."""

    def close(self) -> None:
        """Say that nothing more comes; what is stored can still be read."""

    def waiting(self) -> Sequence[Experience]:
        """Return what was written and not read, in order, without taking it.

        A checkpoint holds it. Without it and a state, no run can be resumed where some waited.
        """
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as json can hold it (Any: each storage's own).

        It stands for experiences that the storage keeps by itself. Without it, see ``waiting``.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""

    def seal(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a checkpoint with what shows later that the storage still has it.

        Without it, a ledger is believed.
        """
        return state

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Store what was read last and not used in its old place.

        Without it, the runtime keeps the experiences, and gives them out before anything else.
        """
        raise NotImplementedError(f"storage {type(self).__name__} takes no experiences back")

    def drop_older(self, min_model_version: int) -> None:
        """Drop what older models made, before a read.

        Without it, only ``read`` is told, by its ``min_model_version``.
        """

    def counts(self) -> Mapping[str, int]:
        """Return experiences by what became of them.

        Without it, the metrics ``buffer/...`` are left out.
        """
        return {}

    def read_for(self, step: int) -> None:
        """Note which optimizer step reads from now on.

        A ledger knows for good what was trained. Without it, ``history.jsonl`` alone tells.
        """

    def begin_anew(self) -> None:
        """Forget what a run wrote that begins from its start."""

    def forget(self, before: int) -> None:
        """Note that no run goes back before this step: what it trained need not be read again."""

    def count_groups(self, names: Sequence[str]) -> list[int]:
        """Return how many experiences wait of each of these groups.

        A group is the experiences of one task; its name is ``batch/task`` of their ids. Without
        it, ``sync_style: fully_async`` keeps them in memory, if there is ``waiting``.
        """
        raise NotImplementedError(f"storage {type(self).__name__} is not read by groups")

    def read_groups(self, names: Sequence[str]) -> list[Experience]:
        """Return what waits of these groups, one after the other, as the step has it."""
        raise NotImplementedError(f"storage {type(self).__name__} is not read by groups")

    def connect(self, parts: Any) -> Peers:
        """Let a run that is one side alone, as a standalone explorer, wait for the other side.

        It may put its own explorer, trainer and sample strategy around those of ``parts`` (Any:
        the runtime's ``Parts``), and weights travel its way. Without it,
        ``synchronizer.standalone`` is refused.

        Raises:
            ConfigError: another process is this side of the run.
        """
        raise NotImplementedError(f"storage {type(self).__name__} connects no standalone runs")

    @classmethod
    def report(
        cls, directory: Path, *, path: str, may_ask_servers: bool = False
    ) -> StorageReport | None:
        """Return what the storage of a run directory tells ``trinity status``.

        The run may be dead, and anybody can have written the directory. Without it, nothing is
        shown.

        Args:
            directory: of the run.
            path: of the storage, as the run's configuration has it; "": it names none.
            may_ask_servers: whether to connect to a server that this path names.

        Raises:
            TrinityError: it cannot be read; the message is shown.
        """
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageReport:
    """What a storage tells of a run."""

    lines: Sequence[str]  # for a person
    facts: Mapping[str, Any]  # for ``--json`` (Any: each storage's own, as json can hold it)


class Peers(Protocol):
    """Connects a run to those that it waits for."""

    def finish(self) -> None:
        """Say that this run did all that it was asked for."""

    def close(self) -> None:
        """Say that this run works no more; safe to call twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageUse:
    """Whose run writes to a storage, or reads from it."""

    run: str = ""  # its folders below checkpoint_root_dir
    directory: Path | None = None  # for buffers, in the run directory that all its sides know
    side: Literal["both", "explore", "train"] = "both"  # of the run that is in this process
    owner: str = ""  # explorer.name where explorers are separate runs; "": the run has one
    is_offline: bool = False  # whether it trains what is there, and nobody writes beside it


class Stateful(Protocol):
    """Has a state that a checkpoint holds."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as json can hold it (Any: each part's own)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""


class StrategySource(Stateful, Protocol):
    """What a sample strategy reads from; each method is as :class:`Storage` says."""

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return ``count`` experiences, fewer only when the writers closed."""

    def available(self) -> int:
        """Return how many experiences can be read without waiting."""

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Store what was read last and not used in its old place."""
