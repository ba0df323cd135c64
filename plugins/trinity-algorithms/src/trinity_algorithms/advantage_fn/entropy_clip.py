"""Leave out the tokens that would lower the policy's entropy most.

B rows of a batch   R response   S = p (H + logprob), with p = e^logprob and H the token's entropy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.algorithm.advantage_fn.grpo import GRPOBatchAdvantageFn
from trinity.algorithm.ops import masked, masked_sum

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.common.batch import ExperienceBatch

__all__ = ["CLIPBAdvantageFn", "CLIPVAdvantageFn"]

_NO_SPREAD = 1e-12


class CLIPBAdvantageFn(GRPOBatchAdvantageFn):
    """Computes GRPO's advantage and masks bad tokens far below the mean S (arXiv 2602.03392).

    A token with A < 0 is masked where ``S - mean(S) < -mu std(S)``, over all unmasked tokens of the
    batch (population deviation). The field ``entropys`` ``[B, R]`` holds the entropies, in nats.

    Args:
        epsilon: of GRPO.
        mu: how many deviations below the mean are too far.
    """

    def __init__(self, *, epsilon: float = 1e-6, mu: float = 2.5) -> None:
        super().__init__(epsilon=epsilon)
        self.mu = mu

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages and a smaller ``action_mask``, and the shares masked."""
        exps, _ = super().__call__(exps)
        mask_BR = exps["action_mask"].bool()
        score_BR = _score(exps, mask_BR)
        mean, variance = _moments(score_BR, mask_BR)
        is_bad_BR = exps["advantages"] < 0
        is_far_BR = score_BR - mean < -self.mu * variance.sqrt()
        dropped_BR = is_bad_BR & is_far_BR & (variance.sqrt() >= _NO_SPREAD)
        metrics = _masked_shares(exps["advantages"], mask_BR, dropped_BR)
        exps["action_mask"] = mask_BR & ~dropped_BR
        return exps, metrics | {"ES": mean.item(), "varS": variance.item()}


class CLIPVAdvantageFn(GRPOBatchAdvantageFn):
    """Computes GRPO's advantage and masks tokens whose entropy falls too fast (arXiv 2602.03392).

    A token with A <= 0 is masked where ``X = necs - S > mu std(X)``, over all unmasked tokens of
    the batch (population deviation, X not centred). The field ``necs`` ``[B, R]`` holds the mean of
    S over the policy, ``sum(p S)`` of all tokens that could stand there; ``entropys`` the
    entropies.

    Args:
        epsilon: of GRPO.
        mu: how many deviations are too much.
        max_frac: the largest share of tokens that may be masked: beyond it, those with A < 0 of the
            largest X, at least one.
    """

    def __init__(self, *, epsilon: float = 1e-6, mu: float = 8.5, max_frac: float = 1e-4) -> None:
        super().__init__(epsilon=epsilon)
        self.mu = mu
        self.max_frac = max_frac

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages and a smaller ``action_mask``, and the shares masked."""
        exps, _ = super().__call__(exps)
        mask_BR = exps["action_mask"].bool()
        change_BR = masked(exps["necs"], mask_BR) - _score(exps, mask_BR)
        deviation = _moments(change_BR, mask_BR)[1].sqrt()
        violates_BR = (change_BR > self.mu * deviation) & mask_BR & (exps["advantages"] <= 0)
        dropped_BR = self._capped(violates_BR, change_BR, exps["advantages"], int(mask_BR.sum()))
        metrics = _masked_shares(exps["advantages"], mask_BR, dropped_BR)
        exps["action_mask"] = mask_BR & ~dropped_BR
        return exps, metrics | {"stdD": deviation.item()}

    def _capped(
        self, violates_BR: Tensor, change_BR: Tensor, advantages_BR: Tensor, total: int
    ) -> Tensor:
        is_bad_BR = violates_BR & (advantages_BR < 0)
        cap = max(int(self.max_frac * total), 1)
        is_too_much = int(violates_BR.sum()) > self.max_frac * total
        if not is_too_much or int(is_bad_BR.sum()) <= cap:
            return violates_BR
        worst = change_BR.masked_fill(~is_bad_BR, -float("inf")).flatten().topk(cap).indices
        chosen_BR = is_bad_BR.new_zeros(is_bad_BR.numel()).index_fill(0, worst, True)  # noqa: FBT003
        return (violates_BR & ~is_bad_BR) | chosen_BR.view(is_bad_BR.shape)


def _score(exps: ExperienceBatch, mask_BR: Tensor) -> Tensor:
    logprob_BR = masked(exps["old_logprob"].detach(), mask_BR)
    entropy_BR = masked(exps["entropys"].detach(), mask_BR)
    return masked(logprob_BR.exp() * (entropy_BR + logprob_BR), mask_BR)


def _moments(values_BR: Tensor, mask_BR: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and population variance of the unmasked values."""
    count = mask_BR.sum().clamp(min=1)
    mean = masked_sum(values_BR, mask_BR) / count
    return mean, masked_sum((values_BR - mean).square(), mask_BR) / count


def _masked_shares(advantages_BR: Tensor, mask_BR: Tensor, dropped_BR: Tensor) -> dict[str, float]:
    """Return the shares of the tokens, the good and the bad ones; 1 of none."""
    classes = {"": mask_BR, "_pos": advantages_BR > 0, "_neg": advantages_BR < 0}
    shares = {}
    for name, of_class_BR in classes.items():
        chosen_BR = of_class_BR & mask_BR
        num_kept = int((chosen_BR & ~dropped_BR).sum())
        shares[f"frac_clipped{name}"] = 1.0 - num_kept / max(int(chosen_BR.sum()), 1)
    return shares
