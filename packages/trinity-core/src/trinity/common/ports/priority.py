"""What comes first in a replay buffer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience


class PriorityFn(ABC):
    """Judges experiences that were written together. Made with its own arguments."""

    @abstractmethod
    def __call__(self, experiences: Sequence[Experience]) -> tuple[float, bool]:
        """Return the priority, higher first, and whether they are worth keeping."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, as json can hold it (Any: each function's own)."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
