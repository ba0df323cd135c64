"""What a scheduler knows of the orders that it was given, and of those that run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trinity.common.ports import Busy, RolloutEngine

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trinity.explorer.order import RunReport
    from trinity.explorer.pieces import ConcurrentMode, Piece
    from trinity.explorer.runner import Attempt
    from trinity.explorer.threads import Slot

__all__ = ["Active", "BusyEngine", "Call", "Limits"]


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
