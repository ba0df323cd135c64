"""The built-in algorithms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.algorithm import AlgorithmType
from trinity.algorithm.schema import CPTDataModel, DPODataModel, SFTDataModel
from trinity.errors import ConfigError
from trinity.extend.published import published_name

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = [
    "CPTAlgorithm",
    "DAPOAlgorithm",
    "DPOAlgorithm",
    "GRPOAlgorithm",
    "GRPOVerlAlgorithm",
    "MultiStepGRPOAlgorithm",
    "PPOAlgorithm",
    "RAFTAlgorithm",
    "SFTAlgorithm",
]

__getattr__ = partial(published_name, __name__)  # classes that a plugin has now


class GRPOAlgorithm(AlgorithmType):
    """Compares the runs of a task with each other (arXiv 2402.03300)."""

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


class GRPOVerlAlgorithm(GRPOAlgorithm):
    """Compares the runs of a task on token rewards, in the trainer: a KL penalty counts.

    Trinity-RFT names the advantage function of the pipeline here, which cannot run in the trainer.
    """

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return GRPO's parts, the advantage that is computed in the trainer."""
        return super().default_config() | {"advantage_fn": "grpo_verl"}


class DAPOAlgorithm(GRPOAlgorithm):
    """Runs GRPO in large groups and without a reference model (arXiv 2503.14476).

    The rest of DAPO is set beside it: the operator ``dapo_dynamic_sampling``, which drops the tasks
    that all runs solve or none, and ``clip_range_high`` 0.28 of the loss.
    """

    use_reference: ClassVar[bool] = False

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return GRPO's parts without a KL term."""
        return super().default_config() | {"repeat_times": 16, "kl_loss_fn": "none"}


class PPOAlgorithm(GRPOAlgorithm):
    """Asks a critic what a token was worth (arXiv 1707.06347)."""

    use_critic: ClassVar[bool] = True

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return PPO's parts."""
        return super().default_config() | {"repeat_times": 1, "advantage_fn": "ppo"}


class MultiStepGRPOAlgorithm(GRPOAlgorithm):
    """Gives all steps of a run the score of its last one (arXiv 2402.03300, over runs)."""

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return GRPO's parts with the advantage of whole runs."""
        return super().default_config() | {"repeat_times": 8, "advantage_fn": "step_wise_grpo"}


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
        _check_trains_from_file(config, "sft")


class CPTAlgorithm(SFTAlgorithm):
    """Goes on with pre-training, on plain text."""

    schema: ClassVar[type | str] = CPTDataModel

    @classmethod
    def check_config(cls, config: Config) -> None:
        """Refuse every mode but ``train``: there is nothing to explore."""
        _check_trains_from_file(config, "cpt")


class DPOAlgorithm(AlgorithmType):
    """Prefers one answer of a pair to the other (arXiv 2305.18290)."""

    use_advantage: ClassVar[bool] = False
    can_balance_batch: ClassVar[bool] = False  # chosen and rejected stay side by side
    schema: ClassVar[type | str] = DPODataModel

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return DPO's parts; a pair is two rows."""
        return {
            "repeat_times": 2,
            "sample_strategy": "default",
            "policy_loss_fn": "dpo",
            "kl_loss_fn": "k2",
            "entropy_loss_fn": "default",
        }

    @classmethod
    def check_config(cls, config: Config) -> None:
        """Refuse every mode but ``train``: the pairs are there already."""
        _check_trains_from_file(config, "dpo")


class RAFTAlgorithm(AlgorithmType):
    """Imitates the policy's own runs, those that an operator lets through (arXiv 2304.06767)."""

    use_reference: ClassVar[bool] = False
    use_advantage: ClassVar[bool] = False

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return SFT's parts, on experiences."""
        return SFTAlgorithm.default_config()


def _check_trains_from_file(config: Config, name: str) -> None:
    if config.mode != "train":
        raise ConfigError(
            f"mode is {config.mode!r}, but algorithm {name} only trains on rows of a file. "
            "Set mode: train and buffer.trainer_input.experience_buffer.path."
        )
