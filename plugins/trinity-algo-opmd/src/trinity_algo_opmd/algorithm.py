"""Describe OPMD by the names of its parts."""

from __future__ import annotations

from typing import Any, ClassVar

from trinity.algorithm import AlgorithmType, ExperienceModel

__all__ = ["OPMDAlgorithm"]


class OPMDAlgorithm(AlgorithmType):
    """Compares the runs of a task and needs no ratio to the policy that made them."""

    use_critic: ClassVar[bool] = False
    use_reference: ClassVar[bool] = True
    use_advantage: ClassVar[bool] = True
    can_balance_batch: ClassVar[bool] = True
    schema: ClassVar[type | str] = ExperienceModel

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return OPMD's parts."""
        return {
            "repeat_times": 2,
            "sample_strategy": "warmup",
            "policy_loss_fn": "opmd",
            "advantage_fn": "opmd",
            "kl_penalty_fn": "none",
            "kl_loss_fn": "k2",
            "entropy_loss_fn": "default",
        }
