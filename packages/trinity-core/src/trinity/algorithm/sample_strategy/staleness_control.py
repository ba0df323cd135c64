"""Sample a batch that no old weights made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trinity.algorithm.sample_strategy.base import SampleStrategy
from trinity.algorithm.sample_strategy.version_metrics import version_metrics

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["StalenessControlSampleStrategy"]


class StalenessControlSampleStrategy(SampleStrategy):
    """Reads what comes next and drops what weights of more than so many steps ago sampled.

    Step s trains the weights of version s - 1, so a row is dropped where its version is below
    ``s - max_staleness - 1``.

    Args:
        max_staleness: how many optimizer steps the weights may lag behind, 0 or above.

    Raises:
        ValueError: ``max_staleness`` is negative.
    """

    def __init__(self, *, max_staleness: float = math.inf) -> None:
        if not max_staleness >= 0:
            raise ValueError(f"max_staleness is {max_staleness}; it must be 0 or above")
        self.max_staleness = max_staleness

    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the next batch and the weight versions that sampled it."""
        experiences = self.source.read(
            self.train_batch_size,
            timeout_s=self.read_timeout_s,
            min_model_version=math.ceil(self.oldest_version(step)),
        )
        return experiences, version_metrics(experiences)

    def oldest_version(self, step: int) -> float:
        """Return the lowest version that a step may train on, 0 or above."""
        return max(step - self.max_staleness - 1, 0)
