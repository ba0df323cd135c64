"""``algorithm``: the loss, and the correction where rollout and trainer disagree."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trinity.common.config.base import Lowercase, StrictModel, core, not_yet, other, section
from trinity.errors import did_you_mean

__all__ = [
    "AlgorithmConfig",
    "LossAggMode",
    "OptimizerConfig",
    "RolloutCorrectionConfig",
    "RolloutCorrectionSetting",
]


_VERL = "trainers of verl"
_WORDS: dict[str, dict[str, str]] = {
    "truncated_importance_sampling": {"rollout_is": "token"},
    "tis": {"rollout_is": "token"},
    "rejection": {"rollout_rs": "geometric"},
}


class RolloutCorrectionConfig(StrictModel):
    """The published dict; a word stands for one: off, truncated_importance_sampling, rejection."""

    rollout_is: Annotated[Literal["token", "sequence"] | None, Lowercase] = core(
        None, "weigh by the ratio of trainer and engine: of each token, or of the response"
    )
    rollout_is_threshold: float = core(2.0, "the largest weight", gt=0)
    rollout_rs: Annotated[Literal["sequence", "geometric"] | None, Lowercase] = core(
        None, "leave out responses by their ratio, or by its geometric mean over the tokens"
    )
    rollout_rs_threshold: float | None = core(
        None, "the largest ratio of a response that stays; default: rollout_is_threshold", gt=0
    )
    rollout_rs_threshold_lower: float | None = core(
        None, "the smallest; default: one by the largest", gt=0
    )
    bypass_mode: bool = other(
        False, "take the rollout's log-probabilities as old ones", used_by=_VERL
    )

    def fields(self) -> dict[str, Any]:  # Any: words and numbers
        """Return what the maths takes."""
        names = set(RolloutCorrectionConfig.model_fields) - {"bypass_mode"}
        return {name: getattr(self, name) for name in sorted(names)}


def _section(value: Any) -> Any:
    """Return the dict that a word stands for; YAML reads a bare ``off`` as false."""
    if value is None or value is False:
        return None
    if not isinstance(value, str):
        return value
    word = value.lower()
    if word == "off":
        return None
    if word not in _WORDS:
        words = ["off", *_WORDS]
        raise ValueError(
            f"{value!r} is no correction.{did_you_mean(value, words)} "
            f"Known: {', '.join(words)}, or a section of rollout_is and rollout_rs"
        )
    return _WORDS[word]


RolloutCorrectionSetting = Annotated[RolloutCorrectionConfig | None, BeforeValidator(_section)]


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
