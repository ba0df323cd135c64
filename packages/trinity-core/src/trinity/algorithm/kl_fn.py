"""Estimate how far the policy is from the reference, as a loss or as a reward penalty.

B rows of a batch   R response
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from trinity.algorithm.args import WithDefaults
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked, masked_mean
from trinity.extend import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.batch import ExperienceBatch

__all__ = ["KL_FN", "K2KLFn", "KLFn", "NoKLFn"]

__path__: list[str] = []  # a plugin may serve published modules below this one

KL_FN = Registry("kl_fn", kind="kl_fn")


class KLFn(WithDefaults, ABC):
    """Weighs an estimate of KL(policy || reference) per token.

    Args:
        adaptive: after each penalty, move the coefficient towards ``target_kl``
            (arXiv 1909.08593).
        kl_coef: the weight.
        target_kl: in nats per token; needed if adaptive.
        horizon: rows after which a full step of the coefficient is made; needed if adaptive.

    Raises:
        ValueError: adaptive without a target or a horizon above 0.

    See J. Schulman, "Approximating KL Divergence", http://joschu.net/blog/kl-approx.html
    """

    def __init__(
        self,
        *,
        adaptive: bool = False,
        kl_coef: float = 0.001,
        target_kl: float | None = None,
        horizon: float | None = None,
    ) -> None:
        if adaptive and (target_kl is None or horizon is None):
            raise ValueError("adaptive needs target_kl and horizon")
        for name, value in (("target_kl", target_kl), ("horizon", horizon)):
            if adaptive and value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        self.adaptive = adaptive
        self.kl_coef = kl_coef
        self.target_kl = target_kl
        self.horizon = horizon

    @abstractmethod
    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return the estimate of each token, ``[B, R]`` in nats."""

    @property
    def needs_reference(self) -> bool:
        """Return whether the reference model has a say."""
        return self.kl_coef != 0.0

    def calculate_kl_loss(
        self,
        logprob: Tensor,
        ref_logprob: Tensor,
        response_mask: Tensor,
        loss_agg_mode: LossAggMode = "token-mean",
        old_logprob: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return ``kl_coef`` times the aggregated estimate, and it unscaled as ``kl_loss``."""
        kl_BR = self.calculate_kl(
            masked(logprob, response_mask),
            masked(ref_logprob, response_mask),
            None if old_logprob is None else masked(old_logprob, response_mask),
        )
        kl = aggregate_loss(kl_BR, response_mask, loss_agg_mode)
        return self.kl_coef * kl, {"kl_loss": kl.detach().item(), "kl_coef": self.kl_coef}

    def apply_kl_penalty_to_reward(
        self, exps: ExperienceBatch
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Lower each token's reward by ``kl_coef`` times its estimate, then adapt ``kl_coef``."""
        mask_BR = exps["action_mask"].bool()
        kl_BR = self.calculate_kl(
            masked(exps["old_logprob"], mask_BR), masked(exps["ref_logprob"], mask_BR)
        )
        exps["token_level_rewards"] = (
            exps["token_level_rewards"] - masked(kl_BR, mask_BR) * self.kl_coef
        )
        metrics = {"kl": masked_mean(kl_BR, mask_BR, -1).mean().item(), "kl_coef": self.kl_coef}
        self.update_kl_coef(metrics["kl"], len(mask_BR))
        return exps, metrics

    def update_kl_coef(self, current_kl: float, batch_size: int) -> None:
        """Move an adaptive coefficient by at most 20 % a horizon of rows."""
        if not self.adaptive or self.target_kl is None or self.horizon is None:
            return
        error = min(max(current_kl / self.target_kl - 1.0, -0.2), 0.2)
        self.kl_coef *= 1.0 + error * batch_size / self.horizon


class NoKLFn(KLFn):
    """Keeps loss and rewards as they are."""

    @property
    def needs_reference(self) -> bool:
        """Return False: nothing is compared."""
        return False

    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return zeros."""
        return logprob * 0.0

    def calculate_kl_loss(
        self,
        logprob: Tensor,
        ref_logprob: Tensor,
        response_mask: Tensor,
        loss_agg_mode: LossAggMode = "token-mean",
        old_logprob: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return 0 and no metrics."""
        return logprob.new_zeros(()), {}

    def apply_kl_penalty_to_reward(
        self, exps: ExperienceBatch
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch unchanged."""
        return exps, {}


class K2KLFn(KLFn):
    """Takes half the squared difference: ``(ref_logprob - logprob)^2 / 2``.

    Never negative; on-policy its gradient is that of the KL divergence.
    """

    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return the estimate of each token, >= 0."""
        return 0.5 * (ref_logprob - logprob).square()
