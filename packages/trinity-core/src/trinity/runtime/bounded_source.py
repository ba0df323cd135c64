"""Let a sample strategy read what is due, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.common.ports import ExperienceSource

__all__ = ["BoundedSource"]


class BoundedSource:
    """A source that hands out only as many experiences as were allowed.

    With style ``fixed`` the trainer trains, before a sync, exactly what was explored up to it: full
    batches and then a short one. What belongs to later steps stays in the buffer.
    """

    def __init__(self, source: ExperienceSource) -> None:
        self._source = source
        self.num_due = 0  # experiences that may be read now

    def allow(self, count: int) -> None:
        """Make ``count`` more experiences readable."""
        self.num_due += count

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return up to ``count`` of the due experiences.

        Raises:
            StopIteration: nothing is due.
        """
        wanted = min(count, self.num_due)
        if wanted == 0:
            raise StopIteration
        experiences = self._source.read(
            wanted, timeout_s=timeout_s, min_model_version=min_model_version
        )
        # A source drops what is too stale while it reads; those are not due any more either.
        self.num_due = min(self.num_due - len(experiences), self._source.available())
        return experiences

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give back what was read last and not used: it is due again."""
        if hasattr(self._source, "put_back"):
            self._source.put_back(experiences)
            self.num_due += len(experiences)

    def available(self) -> int:
        """Return how many experiences are due and there."""
        return min(self.num_due, self._source.available())
