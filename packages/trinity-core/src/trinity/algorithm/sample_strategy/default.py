"""Sample the next batch of the experience buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.algorithm.sample_strategy.base import SampleStrategy
from trinity.algorithm.sample_strategy.version_metrics import version_metrics

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["DefaultSampleStrategy"]


class DefaultSampleStrategy(SampleStrategy):
    """Reads what comes next."""

    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the next batch and the weight versions that sampled it."""
        experiences = self.source.read(self.train_batch_size, timeout_s=self.read_timeout_s)
        return experiences, version_metrics(experiences)
