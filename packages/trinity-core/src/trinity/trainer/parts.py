"""Build the maths that a configuration names."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.batch import ALIASES
from trinity.extend import get_manager

if TYPE_CHECKING:
    from trinity.algorithm.advantage_fn import AdvantageFn
    from trinity.algorithm.algorithm import AlgorithmType
    from trinity.algorithm.entropy_loss_fn import EntropyLossFn
    from trinity.algorithm.kl_fn import KLFn
    from trinity.algorithm.ops import LossAggMode
    from trinity.algorithm.policy_loss_fn import PolicyLossFn
    from trinity.common.config.algorithm import AlgorithmConfig

__all__ = ["AlgorithmParts", "build_parts"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AlgorithmParts:
    """The components of an algorithm, ready to be called."""

    algorithm: type[AlgorithmType]
    policy_loss_fn: PolicyLossFn
    entropy_loss_fn: EntropyLossFn
    loss_agg_mode: LossAggMode
    advantage_fn: AdvantageFn | None  # None: the algorithm uses no advantages
    kl_loss_fn: KLFn | None  # None: no KL term in the loss
    kl_penalty_fn: KLFn | None  # None: rewards stay as they are

    @property
    def loss_needs_reference(self) -> bool:
        """Return whether the loss reads the reference model's log-probabilities."""
        keys = {ALIASES.get(key, key) for key in self.policy_loss_fn.select_keys}
        return self.kl_loss_fn is not None or "ref_logprob" in keys


def build_parts(config: AlgorithmConfig) -> AlgorithmParts:
    """Return the components that a resolved section ``algorithm`` names."""
    algorithm = get_manager().load("algorithm", config.algorithm_type)
    uses_advantage = algorithm.setting("use_advantage") and config.advantage_fn is not None
    return AlgorithmParts(
        algorithm=algorithm,
        policy_loss_fn=_build(
            "policy_loss_fn", config.policy_loss_fn or "ppo", config.policy_loss_fn_args
        ),
        entropy_loss_fn=_build(
            "entropy_loss_fn", config.entropy_loss_fn or "none", config.entropy_loss_fn_args
        ),
        loss_agg_mode=config.loss_agg_mode or "token-mean",
        advantage_fn=_build("advantage_fn", config.advantage_fn, config.advantage_fn_args)
        if uses_advantage
        else None,
        kl_loss_fn=_build_kl(algorithm, config.kl_loss_fn, config.kl_loss_fn_args),
        kl_penalty_fn=_build_kl(algorithm, config.kl_penalty_fn, config.kl_penalty_fn_args),
    )


def _build_kl(
    algorithm: type[AlgorithmType], name: str | None, args: dict[str, Any] | None
) -> KLFn | None:
    kl_fn = _build("kl_fn", name or "none", args)
    if not kl_fn.needs_reference:
        return None
    if algorithm.setting("use_reference"):
        return kl_fn
    logger.warning("kl_fn %r is left out: %s uses no reference model", name, algorithm.__name__)
    return None


def _build(kind: str, name: str | None, args: dict[str, Any] | None) -> Any:  # Any: the kind's base
    return get_manager().load(kind, name)(**(args or {}))
