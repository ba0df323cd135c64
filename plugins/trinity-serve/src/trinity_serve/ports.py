"""Runs that agents outside make: where what they said is kept until somebody rewards it.

agent --call--> endpoint --keep--> RunStore --due--> explorer --> buffer
judge --feedback--> endpoint --reward--> ^   <--taken--+
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience

__all__ = [
    "OWN_NAMES",
    "DamagedReplyError",
    "DueRun",
    "Front",
    "RewardRefusedError",
    "RunOverError",
    "RunStore",
    "ServedRun",
]

OWN_NAMES = "auto-"  # how the names begin that a store gives, which clients cannot give

State = Literal["open", "rewarded", "dropped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRun:
    """A run as a store knows it."""

    number: int  # never given twice, also after a restart
    name: str  # by which clients know it
    state: State  # rewarded: as a whole
    rewarded_agents: frozenset[str] = frozenset()  # those that have a reward of their own
    num_calls: int = 0  # the number of its next call


@dataclass(frozen=True, kw_only=True, slots=True)
class DueRun:
    """What one reward is for: the exchanges of a run, or those of one of its agents."""

    reward_number: int
    run_number: int
    name: str
    task: str  # runs of the same are compared with each other; "": it was given none
    agent: str  # "": all that have no reward of their own
    reward: float
    metrics: Mapping[str, float]
    experiences: tuple[Experience, ...]  # in the order of their calls


class RewardRefusedError(Exception):
    """A reward that no exchange can take.

    Attributes:
        why: ``unknown`` (no such run), ``dropped`` (none came in time), ``given`` (it has one),
            ``empty`` (no call was answered).
        agents: that exchanges of the run came from.
    """

    def __init__(
        self,
        why: Literal["unknown", "dropped", "given", "empty"],
        *,
        agents: Sequence[str] = (),
    ) -> None:
        super().__init__(why)
        self.why = why
        self.agents = tuple(agents)


class DamagedReplyError(DataError):
    """A reply or a reward is not what was stored."""


class RunOverError(Exception):
    """A call of a run that takes none, or none of that agent.

    Attributes:
        run: it.
    """

    def __init__(self, run: ServedRun) -> None:
        super().__init__(run.name)
        self.run = run


class RunStore(Protocol):
    """Keeps runs, their exchanges and rewards on the disk; any thread may call.

    A reward is open, then due, then taken in a step of the explorer. Whatever the process ends by,
    each of these is found again as it was when the call that made it returned.

    Every method raises a DataError where the disk does not let it.
    """

    def run(self, name: str, *, owner: str = "", task: str = "") -> ServedRun:
        """Return the run of that name; it begins where there is none.

        Args:
            name: as clients give it.
            owner: who asks.
            task: which task a run that begins is a try at; "": it is not said.
        """

    def unnamed(self, owner: str, *, task: str = "") -> ServedRun:
        """Return the open run of who gives it no name; it begins where there is none.

        Args:
            owner: who asks.
            task: as for :meth:`run`.
        """

    def latest(self, owner: str) -> str:
        """Return the name of the run that somebody called last; "": there was none."""

    def touch(self, run: int, *, agent: str) -> None:
        """Note that a call of a run is accepted.

        Raises:
            RunOverError: it takes none.
        """

    def keep(
        self, run: int, experiences: Sequence[Experience], *, request: int, agent: str
    ) -> None:
        """Store what a call of a run was answered with.

        Raises:
            RunOverError: it takes none any more: it, or its agent, got a reward, or it was dropped.
        """

    def reward(
        self, name: str, reward: float, *, agent: str = "", metrics: Mapping[str, float]
    ) -> tuple[int, int]:
        """Reward a run, or one of its agents; return the run and how many experiences that are.

        Raises:
            RewardRefusedError: there is nothing to reward.
        """

    def commit(self) -> tuple[int, int]:
        """Make what is rewarded due; return how many rewards and experiences that are.

        Raises:
            DamagedReplyError: some of it is not what was stored.
        """

    def due(self) -> list[DueRun]:
        """Return what is due and not taken of the oldest commit, in the order of the rewards.

        Of a commit that could not be processed whole, it is one group.

        Raises:
            DamagedReplyError: some of it is not what was stored.
        """

    def taken(self, rewards: Sequence[int], *, step: int) -> None:
        """Note that the explorer took these rewards, by their numbers, in a step."""

    def failed(self, rewards: Sequence[int]) -> bool:
        """Note that these could not be processed, and were not taken after all.

        Returns:
            Whether they failed before and are set aside now: they are not due any more.
        """

    def rewind(self, step: int) -> int:
        """Make due again what was taken in later steps, which are to be made once more.

        Returns:
            How many rewards of those cannot be: their replies are forgotten.
        """

    def forget(self, *, settled: int, trained: int, before: float) -> bool:
        """Forget runs that are over, but none that is rewarded and not trained.

        Args:
            settled: the replies that were taken until this step go.
            trained: those until this one go, too, where their run is old.
            before: seconds since 1970; runs that were called last before it are old. Of those the
                names and rewards go, too.

        Returns:
            Whether there may be more to forget: one call does not take long.
        """

    def forgotten(self) -> Mapping[str, int]:
        """Return how many ``experiences`` and ``runs`` were forgotten."""

    def drop(self, *, before: float, spared: Sequence[int] = ()) -> list[int]:
        """Forget the exchanges without a reward of runs that were silent since; return those runs.

        Args:
            before: seconds since 1970.
            spared: runs that are being answered.
        """

    def counts(self) -> Mapping[str, int]:
        """Return how many there are: open and dropped runs, rewards by what became of them.

        What is forgotten counts, too.
        """

    def close(self) -> None:
        """Free the file; safe to call twice."""


class Front(Protocol):
    """What agents outside ask, as the explorer sees it."""

    def open(self) -> None:
        """Begin to answer; safe to call twice."""

    def wait(self, timeout_s: float) -> None:
        """Return when somebody commits, or time is up."""

    def busy(self) -> list[int]:
        """Return the runs that are being answered, by their numbers."""

    def forget(self, runs: Sequence[int]) -> None:
        """Refuse further calls of these runs, by their numbers."""

    def close(self) -> None:
        """Answer nothing any more; safe to call twice."""
