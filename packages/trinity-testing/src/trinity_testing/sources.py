"""A buffer to read from that is full from the start, or comes late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.common.experience import Experience

__all__ = ["ListSource"]


class ListSource:
    """Gives experiences in order, then ends; every read is noted.

    Args:
        experiences: what it gives.
        late_reads: the reads (from 0) that time out; none of the experiences is lost by it.

    Attributes:
        timeouts_s: how long each read might have waited.

    >>> from trinity_testing.builders import a_group
    >>> source = ListSource(a_group((1.0, 0.5, 0.0)))
    >>> [exp.reward for exp in source.read(2, timeout_s=0)], source.available()
    ([1.0, 0.5], 1)
    """

    def __init__(
        self, experiences: Sequence[Experience], *, late_reads: Iterable[int] = ()
    ) -> None:
        self._waiting = list(experiences)
        self._late_reads = frozenset(late_reads)
        self.timeouts_s: list[float] = []

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return the next experiences; those of older models are dropped.

        Raises:
            TimeoutError: it was told to be late.
            StopIteration: nothing is left.
        """
        number = len(self.timeouts_s)
        self.timeouts_s.append(timeout_s)
        if number in self._late_reads:
            raise TimeoutError(f"read {number} is late, as it was told to; after {timeout_s} s")
        self._waiting = [
            exp for exp in self._waiting if exp.info.get("model_version", 0) >= min_model_version
        ]
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if not taken:
            raise StopIteration
        return taken

    def available(self) -> int:
        """Return how many are left."""
        return len(self._waiting)

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give these before all others."""
        self._waiting = [*experiences, *self._waiting]

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: what is left is here."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state."""
