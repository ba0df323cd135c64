"""``algorithm``: the loss, and the correction where rollout and trainer disagree."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trinity.common.config.base import Lowercase, StrictModel, core, not_yet, other, section
from trinity.errors import did_you_mean

_VERL = "trainers of verl"
_WORDS: dict[str, dict[str, str]] = {
    "truncated_importance_sampling": {"rollout_is": "token"},
    "tis": {"rollout_is": "token"},
    "rejection": {"rollout_rs": "geometric"},
}


class RolloutCorrectionConfig(StrictModel):
    """A section, or one of the words off, truncated_importance_sampling, rejection."""

    rollout_is: Annotated[Literal["token", "sequence"] | None, Lowercase] = core(
        None, "importance weight trainer / engine, per token or per response"
    )
    rollout_is_threshold: float = core(2.0, "maximum weight", gt=0)
    rollout_rs: Annotated[Literal["sequence", "geometric"] | None, Lowercase] = core(
        None, "reject responses by their ratio, or by its geometric mean over tokens"
    )
    rollout_rs_threshold: float | None = core(
        None, "maximum ratio of an accepted response; default: rollout_is_threshold", gt=0
    )
    rollout_rs_threshold_lower: float | None = core(
        None, "minimum ratio; default: 1 / maximum", gt=0
    )
    bypass_mode: bool = other(
        False, "use the engine's log-probabilities as old_logprobs", used_by=_VERL
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
    lr_warmup_steps_ratio: float = core(0.0, "warmup steps as a fraction of all steps", ge=0, le=1)
    min_lr_ratio: float = core(
        0.01, "lowest learning rate of a decaying schedule, as a fraction of lr", ge=0, le=1
    )
    warmup_style: str | None = core(None, "older name of lr_scheduler_type")
    lr_scheduler_type: Annotated[Literal["constant", "cosine", "linear"], Lowercase] = core(
        "constant", "schedule of the learning rate after the warmup"
    )
    optimizer_type: Annotated[str, Lowercase] = core("adam", "the optimizer; adam means AdamW")
    betas: list[float] = core([0.9, 0.999], "beta1 and beta2 of Adam", min_length=2, max_length=2)
    weight_decay: float = core(0.01, "decoupled weight decay", ge=0)
    clip_grad: float = core(
        1.0, "maximum gradient norm; overrides trainer.grad_clip if given", ge=0
    )


class AlgorithmConfig(StrictModel):
    """``algorithm``: the algorithm and the parts that it is made of.

    A part that is not named comes from the algorithm; arguments of a part that are not given come
    from the algorithm, then from the part itself.
    """

    algorithm_type: str = core("ppo", "the algorithm, a name of `trinity plugins list`")
    repeat_times: int | None = core(
        None, "rollouts per task (group size, num_generations); default: the algorithm's", ge=1
    )
    optimizer: OptimizerConfig = section(OptimizerConfig, "the optimizer")
    sample_strategy: str | None = core(
        None, "the sample strategy: how batches are drawn from the buffer"
    )
    sample_strategy_args: dict[str, Any] | None = core(None, "arguments of sample_strategy")
    advantage_fn: str | None = core(None, "the advantage function")
    advantage_fn_args: dict[str, Any] | None = core(None, "arguments of advantage_fn")
    kl_penalty_fn: str | None = core(None, "KL penalty subtracted from the reward")
    kl_penalty_fn_args: dict[str, Any] | None = core(None, "arguments of kl_penalty_fn")
    policy_loss_fn: str | None = core(None, "the policy loss")
    policy_loss_fn_args: dict[str, Any] | None = core(None, "arguments of policy_loss_fn")
    kl_loss_fn: str | None = core(None, "KL term added to the loss")
    kl_loss_fn_args: dict[str, Any] | None = core(None, "arguments of kl_loss_fn")
    entropy_loss_fn: str | None = core(None, "entropy term of the loss")
    entropy_loss_fn_args: dict[str, Any] | None = core(None, "arguments of entropy_loss_fn")
    loss_agg_mode: Annotated[LossAggMode, Lowercase] | None = core(
        None,
        "aggregation of token losses; a loss's own argument loss_agg_mode overrides it",
    )
    enable_router_replay: bool = not_yet(
        False, "replay the experts that a mixture-of-experts model chose while generating"
    )
    bypass_old_logprobs: bool = core(
        True, "use the engine's log-probabilities as old_logprobs instead of recomputing them"
    )
    rollout_correction: RolloutCorrectionSetting = core(
        None,
        "importance sampling for the difference between trainer and engine: off, "
        "truncated_importance_sampling (tis), rejection, or a section",
    )
