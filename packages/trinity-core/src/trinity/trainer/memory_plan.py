"""Say why the GPU's memory was not enough for a phase of a train step, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.memory import SAME_NAMES, ModelShape, TrainerMemory
from trinity.common.out_of_memory import out_of_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

    from trinity.common.config.trainer import TrainerConfig
    from trinity.errors import ModelError

_FEWEST_TOKENS = 512  # of a micro-batch, below which fewer save next to nothing


class MemoryPlan:
    """Makes of torch's error one that says what ran, what was planned and what helps.

    Args:
        config: ``trainer``.
        model: that is trained.
        num_ranks: of the trainer.
        has_reference: whether the log-probabilities of a frozen model are computed, too.
        critic: configuration of a critic's model; None: there is no critic.
    """

    def __init__(
        self,
        config: TrainerConfig,
        *,
        model: PreTrainedModel,
        num_ranks: int,
        has_reference: bool,
        critic: PreTrainedConfig | None = None,
    ) -> None:
        self._config = config
        self._tokens = config.max_token_len_per_gpu or 4096
        self._num_ranks = num_ranks
        shape = ModelShape.of(model.config.to_dict())
        parameters = list(model.parameters())
        trained = [one.numel() for one in parameters if one.requires_grad]
        self._plan = shape and TrainerMemory(
            shape=shape,
            strategy=config.trainer_strategy,
            num_ranks=num_ranks,
            recomputes=config.gradient_checkpointing,
            has_reference=has_reference,
            adapters=sum(trained) if len(trained) < len(parameters) else 0,
            critic=critic and ModelShape.of(critic.to_dict()),
            **{name: getattr(config, name) for name in SAME_NAMES},
        )

    def explained(self, error: torch.OutOfMemoryError, *, phase: str) -> ModelError:
        """Return the error of a phase of a step."""
        is_pass = "pass" in phase
        words = f" (micro-batches of at most {self._tokens:,} tokens)" if is_pass else ""
        return out_of_memory(
            error,
            phase=f"trainer's {phase}{words}",
            remedies=list(self._remedies(is_pass=is_pass)),
            plan=self._planned(),
        )

    def _planned(self) -> str:
        if self._plan is None:
            return "Nothing was planned for this kind of model."
        numbers = (self._plan.at_rest / 2**20, self._plan.peak(self._tokens) / 2**20)
        return "The plan was {:,.0f} MiB at rest and {:,.0f} MiB at the peak.".format(*numbers)

    def _remedies(self, *, is_pass: bool) -> Iterator[str]:
        config = self._config
        if is_pass:
            if self._tokens > _FEWEST_TOKENS:
                yield f"trainer.max_token_len_per_gpu: {self._tokens // 2} (more micro-batches)"
            if not config.gradient_checkpointing:
                yield "trainer.gradient_checkpointing: true (recomputing: a third more time)"
            if config.precision != "bfloat16":
                yield "trainer.precision: bfloat16 (rounded products)"
        yield (
            "explorer.rollout_model.gpu_memory_utilization, if an engine uses the same GPU: less "
            "than it is"
        )
        if config.trainer_strategy == "ddp":
            if not config.optimizer_offload:
                yield "trainer.optimizer_offload: true (states in CPU memory; slower updates)"
            yield "trainer.trainer_strategy: fsdp2 with trainer.num_ranks of 2 or more"
        else:
            yield f"more GPUs than {self._num_ranks} (trainer.num_ranks)"
