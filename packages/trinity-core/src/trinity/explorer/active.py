"""What a scheduler knows of the orders that it was given, and of those that run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trinity.common.outcome import RunFailure
from trinity.common.ports import Busy, RolloutEngine
from trinity.explorer.order import RunReport

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trinity.explorer.pieces import ConcurrentMode, Piece
    from trinity.explorer.runner import Attempt
    from trinity.explorer.threads import Slot


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much is run at once, how long, and how often."""

    num_slots: int  # of each engine
    timeout_s: float  # of one attempt
    max_attempts: int
    can_fail: bool = True  # False: the first failed run stops everything
    mode: ConcurrentMode = "sequential"  # how a slot makes the runs of a task
    max_at_once: int | None = None  # of them, in the other modes


@dataclass(eq=False, slots=True)
class Call:
    """Orders that were given together."""

    name: Hashable
    num_open: int  # of them, those that have not ended
    results: dict[int, RunReport] = field(default_factory=dict)  # by place

    def note(self, place: int, report: RunReport) -> bool:
        """Take note of how an order ended; return whether somebody asks for all of them now."""
        self.results[place] = report
        self.num_open -= 1
        return not self.num_open and self.name is not None

    def reports(self) -> list[RunReport]:
        """Return how all of them ended, in their order."""
        return [self.results[place] for place in range(len(self.results))]


@dataclass(eq=False)
class Active:
    """An order that runs: STARTED -> ENDED, or STARTED -> LATE -> STARTED again | ENDED."""

    place: int
    attempt: Attempt
    piece: Piece
    slot: Slot
    began: float
    deadline: float


class BusyEngine(RolloutEngine, Busy, Protocol):
    """What the runtime hands to the explorer: it stands in for ``busy_s`` where there is none."""


def report_of(active: Active, ended: object) -> RunReport:
    """Return how a run ended: ``ended`` is its failure, or the list of its experiences."""
    failure = ended if isinstance(ended, RunFailure) else None
    return RunReport(
        order=active.attempt.order,
        experiences=() if failure else tuple(ended),  # type: ignore[arg-type] # a list
        failure=failure,
        retried=active.attempt.earlier,
        duration_s=time.monotonic() - active.began,
    )
