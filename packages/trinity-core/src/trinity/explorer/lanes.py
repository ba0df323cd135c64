"""The orders that wait for a slot: a queue for each engine, and who gave them.

Not thread-safe: the scheduler holds its lock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from trinity.explorer.pieces import pieces_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from trinity.explorer.active import Call, Limits
    from trinity.explorer.order import RunOrder
    from trinity.explorer.pieces import Piece


class Lanes:
    """One queue an engine, the oldest orders first.

    Args:
        count: of the engines.
        limits: how the runs of a task stand together.
    """

    def __init__(self, count: int, limits: Limits) -> None:
        self.queues: list[deque[Piece]] = [deque() for _ in range(count)]
        self._limits = limits
        self._calls: dict[Piece, Call] = {}  # of what waits or runs

    def add(self, call: Call, orders: Sequence[RunOrder]) -> None:
        """Queue the orders of a call, those of a task for one engine."""
        limits = self._limits
        for piece in pieces_of(orders, mode=limits.mode, max_at_once=limits.max_at_once):
            self._calls[piece] = call
            self.queues[self.of(piece.orders[0][1])].append(piece)

    def of(self, order: RunOrder) -> int:
        """Return the number of the engine that answers an order."""
        return order.key.task % len(self.queues)

    def call_of(self, piece: Piece) -> Call:
        """Return the call that a piece belongs to."""
        return self._calls[piece]

    def ended(self, piece: Piece) -> None:
        """Forget a piece whose orders all ended."""
        self._calls.pop(piece, None)

    def where(self, name: Hashable) -> str:
        """Return which engine answers the orders of a call."""
        for piece, call in self._calls.items():
            if call.name == name:
                return f"engine-{self.of(piece.orders[0][1])}"
        return "no engine"

    def withdraw(self, name: Hashable) -> list[Piece]:
        """Take the pieces of a call that wait for a slot out of the queues, and return them."""
        waiting = [p for queue in self.queues for p in queue if self._calls[p].name == name]
        for queue in self.queues:
            kept = [piece for piece in queue if piece not in waiting]
            queue.clear()
            queue.extend(kept)
        return waiting

    def clear(self) -> None:
        """Forget all of them."""
        for queue in self.queues:
            queue.clear()
        self._calls.clear()
