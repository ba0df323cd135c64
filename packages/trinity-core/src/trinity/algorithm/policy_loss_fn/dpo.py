"""Compute DPO's loss on pairs of a preferred and another answer.

P pairs, 2 P rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.algorithm.ops import masked, masked_sum
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DPOPolicyLossFn"]


class DPOPolicyLossFn(PolicyLossFn):
    """Takes ``-(1 - s) ln sigmoid(x) - s ln sigmoid(-x)`` of each pair (arXiv 2305.18290).

    ``x = beta (z_chosen - z_rejected)``, with z the sum of ``logprob - ref_logprob`` over a row's
    tokens. Rows come in pairs: chosen, rejected, chosen, ... Trinity-RFT sums z over the whole
    batch first, which makes one pair of it; the paper's loss is a mean over pairs.

    Args:
        beta: how far the policy may move for a preference, above 0; larger: less far.
        label_smoothing: s, the share of preferences that are taken to be wrong, from 0 to 0.5.

    Raises:
        ValueError: ``beta`` or ``label_smoothing`` is out of its range.
    """

    normalizer = "pairs"

    def __init__(self, *, beta: float = 0.1, label_smoothing: float = 0.0) -> None:
        if beta <= 0:
            raise ValueError(f"beta is {beta}; it must be above 0")
        if not 0.0 <= label_smoothing <= 0.5:
            raise ValueError(f"label_smoothing is {label_smoothing}; it must be from 0 to 0.5")
        self.beta = beta
        self.label_smoothing = label_smoothing

    def __call__(  # type: ignore[override]  # the names are the fields
        self, logprob: Tensor, ref_logprob: Tensor, action_mask: Tensor, **kwargs: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``dpo_loss, chosen_reward, rejected_reward, accuracy_mean``.

        Raises:
            ValueError: the number of rows is odd.
        """
        from torch.nn.functional import logsigmoid

        if len(logprob) % 2:
            raise ValueError(f"DPO needs pairs of rows, there are {len(logprob)}")
        distance_BR = masked(logprob, action_mask) - masked(ref_logprob, action_mask)
        reward_B = self.beta * masked_sum(distance_BR, action_mask, -1)
        chosen_P, rejected_P = reward_B[0::2], reward_B[1::2]
        margin_P = chosen_P - rejected_P
        losses_P = -(1.0 - self.label_smoothing) * logsigmoid(margin_P)
        losses_P = losses_P - self.label_smoothing * logsigmoid(-margin_P)
        loss = losses_P.mean()
        return loss, {
            "dpo_loss": loss.detach().item(),
            "chosen_reward": chosen_P.detach().mean().item(),
            "rejected_reward": rejected_P.detach().mean().item(),
            "accuracy_mean": (chosen_P > rejected_P).double().mean().item(),
        }
