"""Sample a batch of the policy's own rows and an expert's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.algorithm.sample_strategy.base import SampleStrategy
from trinity.algorithm.sample_strategy.strategies import version_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import StrategySource

__all__ = ["MixSampleStrategy"]


class MixSampleStrategy(SampleStrategy):
    """Reads ``ceil(ratio * train_batch_size)`` rows of an expert and the rest of the policy's.

    Each row says in ``info`` whose it is (``is_expert``) and which step it is for (``step``): the
    fields ``expert_mask`` and ``step`` of the batch. An expert's row has reward 0, and zeros as
    log-probabilities and advantages.

    Args:
        expert_data_ratio: the expert's share, from 0 to 1.
        sft_dataset_name: the name of the expert's buffer, in ``auxiliary_buffers``.

    Raises:
        ValueError: the ratio is out of its range.
    """

    def __init__(
        self, *, expert_data_ratio: float = 0.5, sft_dataset_name: str = "sft_dataset"
    ) -> None:
        if not 0.0 <= expert_data_ratio <= 1.0:
            raise ValueError(f"expert_data_ratio is {expert_data_ratio}; it must be from 0 to 1")
        self.expert_data_ratio = expert_data_ratio
        self.sft_dataset_name = sft_dataset_name

    def bind(
        self,
        sources: Mapping[str, StrategySource],
        *,
        train_batch_size: int,
        read_timeout_s: float,
    ) -> None:
        """Take the buffers to read from, before the first sample.

        Raises:
            ValueError: there is no buffer of the expert's name.
        """
        super().bind(sources, train_batch_size=train_batch_size, read_timeout_s=read_timeout_s)
        if self.sft_dataset_name not in list(sources)[1:]:
            raise ValueError(
                f"sample_strategy mix reads the buffer {self.sft_dataset_name!r}, which "
                f"buffer.trainer_input.auxiliary_buffers does not have."
            )
        self.num_usual = self.num_read(train_batch_size)
        self.num_expert = train_batch_size - self.num_usual

    def num_read(self, train_batch_size: int) -> int:
        """Return how many rows of a batch of this size are the policy's own."""
        return train_batch_size - math.ceil(self.expert_data_ratio * train_batch_size)

    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the own rows, then the expert's, and the weight versions of the own ones."""
        usual = self._read(self.source, self.num_usual)
        try:
            expert = self._read(self._experts, self.num_expert)
        except BaseException:
            super().put_back(usual)  # a checkpoint after the failure holds them
            raise
        for is_expert, rows in ((False, usual), (True, expert)):
            for row in rows:
                row.info |= {"is_expert": is_expert, "step": step}
        _fill_in(expert)
        experiences = [*usual, *expert]
        return experiences, version_metrics(experiences)

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give both buffers back what was sampled last and not used."""
        for source, is_expert in ((self.source, False), (self._experts, True)):
            rows = [row for row in experiences if bool(row.info.get("is_expert")) is is_expert]
            if rows:
                source.put_back(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return where both buffers stand."""
        return {name: source.state_dict() for name, source in self._buffers().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where they stood."""
        for name, source in self._buffers().items():
            if name in state:
                source.load_state_dict(state[name])

    @property
    def _experts(self) -> StrategySource:
        return self.sources[self.sft_dataset_name]

    def _read(self, source: StrategySource, count: int) -> list[Experience]:
        return source.read(count, timeout_s=self.read_timeout_s) if count else []

    def _buffers(self) -> dict[str, StrategySource]:
        return {"usual_buffer": self.source, "expert_buffer": self._experts}


def _fill_in(rows: Sequence[Experience]) -> None:
    import torch

    for row in rows:
        row.reward = 0.0
        row.logprobs = torch.zeros(row.response_length)
        row.advantages = torch.zeros(row.response_length)
        row.returns = torch.zeros(row.response_length)
