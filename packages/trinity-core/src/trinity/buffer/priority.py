"""Which experiences a replay buffer gives first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience

__all__ = ["LinearDecay", "PriorityFunction"]


class PriorityFunction(ABC):
    """Judges experiences that were written together."""

    @abstractmethod
    def __call__(self, experiences: Sequence[Experience]) -> tuple[float, bool]:
        """Return the priority, higher first, and whether they are worth keeping."""


class LinearDecay(PriorityFunction):
    """``model_version - decay * use_count``: new before old, fresh before used.

    Args:
        decay: how many versions one use is worth.
    """

    def __init__(self, decay: float = 2.0) -> None:
        self.decay = decay

    def __call__(self, experiences: Sequence[Experience]) -> tuple[float, bool]:
        """Return the mean priority of the experiences; they are always kept."""
        return fmean(self._priority(experience) for experience in experiences), True

    def _priority(self, experience: Experience) -> float:
        version = experience.info.get("model_version", 0)
        return float(version - self.decay * experience.info.get("use_count", 0))
