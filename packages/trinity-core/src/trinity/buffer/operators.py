"""What may happen to experiences between a workflow and the buffer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["ExperienceOperator", "InvalidRewardFilter"]


class ExperienceOperator(ABC):
    """Filters or changes the experiences of an explore step."""

    @abstractmethod
    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return the experiences that go on, and metrics."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Free what the operator holds."""


class InvalidRewardFilter(ExperienceOperator):
    """Drops experiences whose reward is missing, NaN or infinite."""

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return those with a finite reward, and how many were dropped."""
        kept = [exp for exp in exps if exp.reward is not None and math.isfinite(exp.reward)]
        return kept, {"filtered_count": float(len(exps) - len(kept))}
