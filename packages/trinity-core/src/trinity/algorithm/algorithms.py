"""The algorithms that come with the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.algorithm import AlgorithmType
from trinity.algorithm.schema import ExperienceModel, SFTDataModel
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = ["GRPOAlgorithm", "SFTAlgorithm"]


class SFTAlgorithm(AlgorithmType):
    """Imitates the rows of a file."""

    use_reference: ClassVar[bool] = False
    use_advantage: ClassVar[bool] = False
    schema: ClassVar[type | str] = SFTDataModel

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return SFT's parts."""
        return {
            "sample_strategy": "default",
            "policy_loss_fn": "sft",
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
        }

    @classmethod
    def check_config(cls, config: Config) -> None:
        """Refuse every mode but ``train``: there is nothing to explore."""
        if config.mode != "train":
            raise ConfigError(
                f"mode is {config.mode!r}, but algorithm sft only trains on rows of a file. "
                "Set mode: train and buffer.trainer_input.experience_buffer.path."
            )


class GRPOAlgorithm(AlgorithmType):
    """Compares the runs of a task with each other (arXiv 2402.03300)."""

    schema: ClassVar[type | str] = ExperienceModel

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return GRPO's parts."""
        return {
            "repeat_times": 2,
            "advantage_fn": "grpo",
            "sample_strategy": "default",
            "policy_loss_fn": "ppo",
            "kl_penalty_fn": "none",
            "kl_loss_fn": "k2",
            "entropy_loss_fn": "default",
        }
