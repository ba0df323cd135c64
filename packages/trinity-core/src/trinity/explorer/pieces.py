"""What one slot takes at a time: a run, or several runs of one task that go on at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.explorer.order import RunOrder

ConcurrentMode = Literal["sequential", "asynchronous", "multi-threading"]


@dataclass(eq=False, slots=True)
class Piece:
    """Orders that begin together, each with its place in the results."""

    orders: list[tuple[int, RunOrder]]
    num_open: int = 0  # of them, those that have not ended

    def add(self, place: int, order: RunOrder) -> None:
        """Let another order begin with these."""
        self.orders.append((place, order))
        self.num_open += 1


def pieces_of(
    orders: Sequence[RunOrder], *, mode: ConcurrentMode, max_at_once: int | None
) -> list[Piece]:
    """Return the orders in pieces, in their order.

    Args:
        orders: those of a task stand next to each other.
        mode: ``sequential``: each order is a piece. ``multi-threading``: those of a task are one,
            each run in a thread. ``asynchronous``: so for workflows that await, only.
        max_at_once: the most runs of a piece; None: no limit.
    """
    pieces: list[Piece] = []
    last = None
    for place, order in enumerate(orders):
        is_full = pieces and len(pieces[-1].orders) == max_at_once
        task = (order.key.batch, order.key.task)
        if not _may_join(order, mode) or task != last or is_full:
            pieces.append(Piece([]))
        pieces[-1].add(place, order)
        last = task
    return pieces


def _may_join(order: RunOrder, mode: ConcurrentMode) -> bool:
    cls = order.workflow.cls
    if mode == "sequential" or cls.can_repeat:
        return False
    return mode == "multi-threading" or cls.is_async
