"""Estimates of KL(policy || reference) from the log-probabilities of sampled tokens.

B rows of a batch   R response   d = ref_logprob - logprob

Each estimate is one number a token, in nats. See J. Schulman, "Approximating KL Divergence",
http://joschu.net/blog/kl-approx.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.algorithm.kl_fn import KLFn
from trinity.algorithm.ops import MAX_LOG_RATIO

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AbsKLFn", "CorrectedK3KLFn", "K1KLFn", "K3KLFn", "LowVarKLFn"]

MAX_LOW_VAR_KL = 10.0
MAX_CORRECTION = 2.0


class K1KLFn(KLFn):
    """Takes the difference itself: ``-d``.

    Unbiased and of high variance; any sign. As a loss it teaches nothing: the expectation of its
    gradient is 0. As a reward penalty it is the usual choice (arXiv 1909.08593).
    """

    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return the estimate of each token, of any sign."""
        return logprob - ref_logprob


class K3KLFn(KLFn):
    """Takes ``e^d - 1 - d``: unbiased, of low variance, never negative.

    d is held within 20 nats, so that a token that the reference finds likely and the policy does
    not has a finite gradient.
    """

    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return the estimate of each token, >= 0."""
        return _k3(logprob, ref_logprob)


class LowVarKLFn(KLFn):
    """Takes ``e^d - 1 - d`` within [-10, 10], with d within [-20, 20], as verl's ``low_var_kl``."""

    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return the estimate of each token, from 0 to 10."""
        return _k3(logprob, ref_logprob).clamp(-MAX_LOW_VAR_KL, MAX_LOW_VAR_KL)


class AbsKLFn(KLFn):
    """Takes the distance ``|d|``: biased, never negative, of a gradient of constant size."""

    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return the estimate of each token, >= 0."""
        return (ref_logprob - logprob).abs()


class CorrectedK3KLFn(KLFn):
    """Takes ``min(e^(logprob - old_logprob), 2) (e^d - 1 - d)`` (arXiv 2512.02556).

    The ratio makes k3 unbiased for tokens that an older policy sampled; the gradient flows through
    both factors. Without ``old_logprob``, as in a reward penalty, it is k3. The cap at 2 keeps a
    single token from outweighing the batch.
    """

    def calculate_kl(
        self, logprob: Tensor, ref_logprob: Tensor, old_logprob: Tensor | None = None
    ) -> Tensor:
        """Return the estimate of each token, >= 0."""
        kl_BR = _k3(logprob, ref_logprob)
        if old_logprob is None:
            return kl_BR
        ratio_BR = (logprob - old_logprob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        return ratio_BR.clamp(max=MAX_CORRECTION) * kl_BR


def _k3(logprob: Tensor, ref_logprob: Tensor) -> Tensor:
    difference_BR = (ref_logprob - logprob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return difference_BR.expm1() - difference_BR
