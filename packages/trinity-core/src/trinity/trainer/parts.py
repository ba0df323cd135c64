"""Build the maths that a configuration names."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.algorithm.entropy_loss_fn import NoEntropyLossFn
from trinity.algorithm.rollout_correction import RolloutCorrection
from trinity.common.batch import ALIASES
from trinity.errors import ConfigError
from trinity.extend import get_manager

if TYPE_CHECKING:
    from trinity.algorithm.advantage_fn import AdvantageFn
    from trinity.algorithm.algorithm import AlgorithmType
    from trinity.algorithm.entropy_loss_fn import EntropyLossFn
    from trinity.algorithm.kl_fn import KLFn
    from trinity.algorithm.ops import LossAggMode
    from trinity.algorithm.policy_loss_fn import PolicyLossFn
    from trinity.common.config.algorithm import AlgorithmConfig
    from trinity.trainer.logprobs import EntropyUse

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
    rollout_correction: RolloutCorrection | None = None  # None: the rollout is taken as it is
    advantage_needs: frozenset[str] = frozenset()  # words of its ComponentSpec

    @property
    def wants_pairs(self) -> bool:
        """Return whether the loss compares two rows with each other."""
        return self.policy_loss_fn.normalizer == "pairs"

    @property
    def has_critic(self) -> bool:
        """Return whether somebody must say what a token is worth."""
        return bool(self.algorithm.setting("use_critic")) or "values" in self.advantage_needs

    @property
    def advantage_needs_entropies(self) -> bool:
        """Return whether the advantage function looks at the entropy of each token."""
        return bool(self.advantage_needs & {"entropys", "necs"})

    @property
    def loss_needs_reference(self) -> bool:
        """Return whether the loss reads the reference model's log-probabilities."""
        keys = {ALIASES.get(key, key) for key in self.policy_loss_fn.select_keys}
        return self.kl_loss_fn is not None or "ref_logprob" in keys

    @property
    def entropy_use(self) -> EntropyUse:
        """Return what the entropy of each token is needed for."""
        if isinstance(self.entropy_loss_fn, NoEntropyLossFn):
            return None
        return getattr(self.entropy_loss_fn, "entropy_coef", 1.0) != 0.0


def build_algorithm_parts(config: AlgorithmConfig) -> AlgorithmParts:
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
        rollout_correction=_build_correction(config),
        advantage_needs=get_manager().find("advantage_fn", config.advantage_fn).spec.needs
        if uses_advantage
        else frozenset(),
    )


def _build_correction(config: AlgorithmConfig) -> RolloutCorrection | None:
    setting = config.rollout_correction
    try:
        return None if setting is None else RolloutCorrection(**setting.fields())
    except ValueError as error:
        raise ConfigError(f"algorithm.rollout_correction: {error}.") from error


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
