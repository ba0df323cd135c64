"""What comes first in a replay buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience

__all__ = ["PriorityFn"]


class PriorityFn(Protocol):
    """Judges experiences that were written together. Made with its own arguments."""

    def __call__(self, experiences: Sequence[Experience]) -> tuple[float, bool]:
        """Return the priority, higher first, and whether they are worth keeping."""
