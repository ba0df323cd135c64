"""The contract of a sample strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trinity.algorithm.args import WithDefaults
from trinity.extend import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import StrategySource

__all__ = ["SAMPLE_STRATEGY", "SampleStrategy"]

SAMPLE_STRATEGY = Registry("sample_strategy", kind="sample_strategy")


class SampleStrategy(WithDefaults, ABC):
    """Chooses what the trainer trains on next."""

    def bind(
        self,
        sources: Mapping[str, StrategySource],
        *,
        train_batch_size: int,
        read_timeout_s: float,
    ) -> None:
        """Take the buffers to read from, before the first sample.

        Args:
            sources: the experience buffer first, then the auxiliary ones, by name.
            train_batch_size: how many experiences make a batch.
            read_timeout_s: how long a read may wait.
        """
        self.sources = sources
        self.train_batch_size = train_batch_size
        self.read_timeout_s = read_timeout_s

    @cached_property
    def source(self) -> StrategySource:
        """Return the experience buffer."""
        return next(iter(self.sources.values()))

    @abstractmethod
    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the batch of a step, shorter only at the end, and metrics.

        Raises:
            StopIteration: there is nothing left.
            TimeoutError: the buffer did not fill in time.
        """

    def num_read(self, train_batch_size: int) -> int:
        """Return how many rows of a batch of this size come from the experience buffer."""
        return train_batch_size

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give the buffers back what was sampled last and not used."""
        if experiences:
            self.source.put_back(experiences)

    def state_dict(self) -> dict[str, Any]:  # Any: each strategy's own, as json can hold it
        """Return what a resumed run needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
