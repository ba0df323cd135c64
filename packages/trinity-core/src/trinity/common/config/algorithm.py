"""``algorithm``: which loss is minimised, and how."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from typing import Annotated, Any, Literal

from trinity.common.config.base import Lowercase, StrictModel, core, not_yet, section
from trinity.common.config.rollout_correction import RolloutCorrectionSetting

__all__ = ["AlgorithmConfig", "LossAggMode", "OptimizerConfig"]

LossAggMode = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]


class OptimizerConfig(StrictModel):
    """``algorithm.optimizer``: the optimizer and its learning rate over time."""

    lr: float = core(1e-6, "learning rate", ge=0)
    lr_warmup_steps: int = core(-1, "steps until the full learning rate; -1: use the ratio", ge=-1)
    lr_warmup_steps_ratio: float = core(0.0, "warmup as a part of all steps", ge=0, le=1)
    min_lr_ratio: float = core(
        0.01, "the lowest learning rate of a decaying schedule, as a part of lr", ge=0, le=1
    )
    warmup_style: str | None = core(None, "older name of lr_scheduler_type")
    lr_scheduler_type: Annotated[Literal["constant", "cosine", "linear"], Lowercase] = core(
        "constant", "how the learning rate goes on after the warmup"
    )
    optimizer_type: Annotated[str, Lowercase] = core("adam", "the optimizer; adam means AdamW")
    betas: list[float] = core(
        [0.9, 0.999], "decay rates of Adam's two moments", min_length=2, max_length=2
    )
    weight_decay: float = core(0.01, "decoupled weight decay", ge=0)
    clip_grad: float = core(
        1.0, "largest gradient norm; where given it wins over trainer.grad_clip", ge=0
    )


class AlgorithmConfig(StrictModel):
    """``algorithm``: the algorithm and the parts that it is made of.

    A part that is not named comes from the algorithm; arguments of a part that are not given come
    from the algorithm, then from the part itself.
    """

    algorithm_type: str = core("ppo", "the algorithm, a name of `trinity plugins list`")
    repeat_times: int | None = core(
        None, "runs of each task (the group size); default: the algorithm's", ge=1
    )
    optimizer: OptimizerConfig = section(OptimizerConfig, "the optimizer")
    sample_strategy: str | None = core(None, "how batches are taken from the buffer")
    sample_strategy_args: dict[str, Any] | None = core(None, "arguments of sample_strategy")
    advantage_fn: str | None = core(None, "how advantages follow from rewards")
    advantage_fn_args: dict[str, Any] | None = core(None, "arguments of advantage_fn")
    kl_penalty_fn: str | None = core(None, "KL divergence taken off the reward")
    kl_penalty_fn_args: dict[str, Any] | None = core(None, "arguments of kl_penalty_fn")
    policy_loss_fn: str | None = core(None, "the policy loss")
    policy_loss_fn_args: dict[str, Any] | None = core(None, "arguments of policy_loss_fn")
    kl_loss_fn: str | None = core(None, "KL divergence added to the loss")
    kl_loss_fn_args: dict[str, Any] | None = core(None, "arguments of kl_loss_fn")
    entropy_loss_fn: str | None = core(None, "entropy term of the loss")
    entropy_loss_fn_args: dict[str, Any] | None = core(None, "arguments of entropy_loss_fn")
    loss_agg_mode: Annotated[LossAggMode, Lowercase] | None = core(
        None,
        "how token losses become one number; an argument loss_agg_mode of a loss wins over it",
    )
    enable_router_replay: bool = not_yet(
        False, "replay the experts that a mixture-of-experts model chose while generating"
    )
    bypass_old_logprobs: bool = core(
        True, "take the rollout's log-probabilities as old ones instead of computing them again"
    )
    rollout_correction: RolloutCorrectionSetting = core(
        None,
        "correction where trainer and engine disagree about what was sampled: off, "
        "truncated_importance_sampling (tis), rejection, or the published section",
    )
