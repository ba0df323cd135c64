"""Describe OPMD and its relatives by the names of their parts."""

from __future__ import annotations

from typing import Any, ClassVar

from trinity.algorithm import AlgorithmType, ExperienceModel

__all__ = ["ASYMREAlgorithm", "OPMDAlgorithm", "SPPOAlgorithm"]


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


class ASYMREAlgorithm(AlgorithmType):
    """Compares the runs of a task with a baseline below their mean (arXiv 2506.20520)."""

    use_reference: ClassVar[bool] = False
    schema: ClassVar[type | str] = ExperienceModel

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return AsymRE's parts, OPMD's loss among them."""
        return {
            "repeat_times": 2,
            "sample_strategy": "default",
            "policy_loss_fn": "opmd",
            "advantage_fn": "asymre",
            "kl_penalty_fn": "none",
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
        }


class SPPOAlgorithm(AlgorithmType):
    """Moves the policy only where it is still close to the one that sampled (arXiv 2108.05828)."""

    use_reference: ClassVar[bool] = False
    schema: ClassVar[type | str] = ExperienceModel

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """Return SPPO's parts, OPMD's advantage among them."""
        return {
            "repeat_times": 2,
            "sample_strategy": "default",
            "policy_loss_fn": "sppo",
            "advantage_fn": "opmd",
            "kl_penalty_fn": "none",
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
        }
