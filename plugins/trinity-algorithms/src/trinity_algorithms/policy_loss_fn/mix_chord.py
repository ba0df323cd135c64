"""Compute CHORD's loss: an expert's share that rises and falls with the step.

B rows of a micro-batch   R response
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.algorithm.ops import LossAggMode  # noqa: TC002 -- the documentation resolves it
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn
from trinity.algorithm.policy_loss_fn.ppo import PPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.sft import SFTPolicyLossFn

from trinity_algorithms.policy_loss_fn.mixture import PublishedCounts, check_share, mixed_loss
from trinity_algorithms.policy_loss_fn.sft_weighted import SFTPhiPolicyLossFn

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MIXCHORDPolicyLossFn", "expert_share"]


class MIXCHORDPolicyLossFn(PolicyLossFn):
    """Takes ``(1 - mu) PPO(own rows) + mu phi-SFT(expert rows)`` (arXiv 2508.11408).

    mu rises to ``mu_peak`` in the first steps and falls along a cosine to ``mu_valley``. Each part
    is a mean over its own rows or tokens; a part without rows is 0, and so are its metrics.

    Args:
        mu_warmup_steps: steps until the peak.
        mu_decay_steps: steps from the peak to the valley.
        mu_peak: the largest share, from 0 to 1.
        mu_valley: the last share, from 0 to 1.
        clip_range: of PPO, on a side that has no range of its own.
        clip_range_low: how far below 1; None: ``clip_range``.
        clip_range_high: how far above 1; None: ``clip_range``.
        enable_phi_function: weigh expert tokens by ``p (1 - p)``; off: plain SFT.
        loss_agg_mode: how tokens become one number, in a part that has no mode of its own.
        grpo_loss_agg_mode: that of PPO; None: ``loss_agg_mode``.
        sft_loss_agg_mode: that of SFT; None: ``loss_agg_mode``.
        use_dynamic_bsz: published; how micro-batches are counted. Here and below: the trainer
            gives the loss the masks of the whole batch, which win.
        ppo_mini_batch_size: published; rows of a mini-batch.
        ppo_micro_batch_size_per_gpu: published; rows of a micro-batch.
        ngpus_trainer: published; processes that share a batch.
        train_batch_size_usual: published; own rows of a batch.
        train_batch_size_expert: published; expert rows of a batch.

    Raises:
        ValueError: ``mu_peak`` or ``mu_valley`` is out of its range, or there is no such mode.
    """

    normalizer = "sum"

    def __init__(  # noqa: PLR0913 -- the options of the loss
        self,
        *,
        mu_warmup_steps: int = 0,
        mu_decay_steps: int = 0,
        mu_peak: float = 0.1,
        mu_valley: float = 0.1,
        clip_range: float = 0.2,
        clip_range_low: float | None = None,
        clip_range_high: float | None = None,
        enable_phi_function: bool = True,
        loss_agg_mode: LossAggMode = "token-mean",
        grpo_loss_agg_mode: LossAggMode | None = None,
        sft_loss_agg_mode: LossAggMode | None = None,
        use_dynamic_bsz: bool = False,
        ppo_mini_batch_size: int = 1,
        ppo_micro_batch_size_per_gpu: int = 1,
        ngpus_trainer: int = 1,
        train_batch_size_usual: int = 1,
        train_batch_size_expert: int = 1,
    ) -> None:
        check_share(mu_peak=mu_peak, mu_valley=mu_valley)
        self.mu_warmup_steps, self.mu_decay_steps = mu_warmup_steps, mu_decay_steps
        self.mu_peak, self.mu_valley = mu_peak, mu_valley
        expert = SFTPhiPolicyLossFn if enable_phi_function else SFTPolicyLossFn
        self._losses: dict[str, PolicyLossFn] = {
            "usual": PPOPolicyLossFn(
                clip_range=clip_range,
                clip_range_low=clip_range_low,
                clip_range_high=clip_range_high,
                loss_agg_mode=grpo_loss_agg_mode or loss_agg_mode,
            ),
            "expert": expert(loss_agg_mode=sft_loss_agg_mode or loss_agg_mode),
        }
        self._counts = PublishedCounts(
            use_dynamic_bsz=use_dynamic_bsz,
            ppo_mini_batch_size=ppo_mini_batch_size,
            ppo_micro_batch_size_per_gpu=ppo_micro_batch_size_per_gpu,
            ngpus_trainer=ngpus_trainer,
            train_batch_size_usual=train_batch_size_usual,
            train_batch_size_expert=train_batch_size_expert,
        )

    def __call__(  # type: ignore[override]  # noqa: PLR0913 -- the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        expert_mask: Tensor,
        step: Tensor,
        *,
        whole_action_mask: Tensor | None = None,
        whole_expert_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, ``loss``, ``mu``, and the parts' metrics under usual/ and expert/.

        Raises:
            ValueError: the rows are of several steps.
        """
        fields = {
            "logprob": logprob,
            "old_logprob": old_logprob,
            "action_mask": action_mask,
            "advantages": advantages,
            "expert_mask": expert_mask,
            "whole_action_mask": whole_action_mask,
            "whole_expert_mask": whole_expert_mask,
        }
        mu = self._mu(step)
        loss, metrics = mixed_loss(
            self._losses, fields, mu=mu, counts=self._counts, reports_empty_parts=True
        )
        return loss, metrics | {"mu": mu}

    def _mu(self, step: Tensor) -> float:
        steps = sorted(set(step.tolist()))
        if len(steps) != 1:
            raise ValueError(f"the rows of a batch must be of one step, these are of {steps}")
        return expert_share(
            int(steps[0]),
            warmup_steps=self.mu_warmup_steps,
            decay_steps=self.mu_decay_steps,
            peak=self.mu_peak,
            valley=self.mu_valley,
        )


def expert_share(
    step: int, *, warmup_steps: int, decay_steps: int, peak: float, valley: float
) -> float:
    """Return mu of a step, counted from 0: a line up to the peak, then half a cosine down.

    >>> [expert_share(s, warmup_steps=2, decay_steps=0, peak=0.5, valley=0.1) for s in (0, 1, 2)]
    [0.0, 0.25, 0.1]
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= warmup_steps + decay_steps:
        return valley
    turn = math.pi * (step - warmup_steps) / decay_steps
    return valley + (peak - valley) * 0.5 * (1.0 + math.cos(turn))
