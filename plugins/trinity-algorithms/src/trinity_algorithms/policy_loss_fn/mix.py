"""Compute the loss of a batch that holds rows of an expert.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.algorithm.ops import LossAggMode  # noqa: TC002 -- the documentation resolves it
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn
from trinity.algorithm.policy_loss_fn.ppo import PPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.sft import SFTPolicyLossFn

from trinity_algorithms.policy_loss_fn.mixture import PublishedCounts, check_share, mixed_loss

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MIXPolicyLossFn"]


class MIXPolicyLossFn(PolicyLossFn):
    """Takes ``(1 - mu) PPO(own rows) + mu SFT(expert rows)`` (arXiv 2508.11408).

    Each part is a mean over its own rows or tokens. A part without rows is 0.

    Args:
        mu: the expert's share, from 0 to 1.
        clip_range: of PPO, on a side that has no range of its own.
        clip_range_low: how far below 1; None: ``clip_range``.
        clip_range_high: how far above 1; None: ``clip_range``.
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
        ValueError: ``mu`` is out of its range, or there is no such mode.
    """

    normalizer = "sum"

    def __init__(  # noqa: PLR0913 -- the options of the loss
        self,
        *,
        mu: float = 0.1,
        clip_range: float = 0.2,
        clip_range_low: float | None = None,
        clip_range_high: float | None = None,
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
        check_share(mu=mu)
        self.mu = mu
        self._losses = {
            "usual": PPOPolicyLossFn(
                clip_range=clip_range,
                clip_range_low=clip_range_low,
                clip_range_high=clip_range_high,
                loss_agg_mode=grpo_loss_agg_mode or loss_agg_mode,
            ),
            "expert": SFTPolicyLossFn(loss_agg_mode=sft_loss_agg_mode or loss_agg_mode),
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
        *,
        whole_action_mask: Tensor | None = None,
        whole_expert_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, ``loss``, and the metrics of PPO and SFT under usual/ and expert/."""
        fields = {
            "logprob": logprob,
            "old_logprob": old_logprob,
            "action_mask": action_mask,
            "advantages": advantages,
            "expert_mask": expert_mask,
            "whole_action_mask": whole_action_mask,
            "whole_expert_mask": whole_expert_mask,
        }
        return mixed_loss(self._losses, fields, mu=self.mu, counts=self._counts)
