"""The algorithms that imitate rows: of a file, or of the best runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.algorithm import AlgorithmType
from trinity.algorithm.schema import CPTDataModel, DPODataModel, SFTDataModel
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = [
    "CPTAlgorithm",
    "DPOAlgorithm",
    "RAFTAlgorithm",
    "SFTAlgorithm",
]


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
        return {
            "sample_strategy": "default",
            "policy_loss_fn": "sft",
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
        }


def _check_trains_from_file(config: Config, name: str) -> None:
    if config.mode != "train":
        raise ConfigError(
            f"mode is {config.mode!r}, but algorithm {name} only trains on rows of a file. "
            "Set mode: train and buffer.trainer_input.experience_buffer.path."
        )
