"""Sample the next batch of the experience buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.algorithm.sample_strategy.base import SampleStrategy
from trinity.common.metrics import aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["DefaultSampleStrategy"]


class DefaultSampleStrategy(SampleStrategy):
    """Reads what comes next."""

    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the next batch and the weight versions that sampled it."""
        experiences = self.source.read(self.train_batch_size, timeout_s=self.read_timeout_s)
        return experiences, _version_metrics(experiences)


def _version_metrics(experiences: Sequence[Experience]) -> Metrics:
    numbers = [
        {
            "model_version": exp.info["model_version"],
            "model_version_drift": exp.info.get("model_version_drift") or 0,
        }
        for exp in experiences
        if exp.info.get("model_version") is not None
    ]
    return aggregate(numbers, prefix="sample")
