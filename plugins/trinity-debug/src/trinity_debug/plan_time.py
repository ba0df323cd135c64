"""How much a step computes, and how long GPUs are busy with it at speeds that somebody measured.

With P parameters that a token goes through (an embedding is looked up, not multiplied; of a
mixture's experts those that it goes to) and T tokens of a step, in floating-point operations:

    forward and backward pass        6 P T; recomputed 8 P T
    forward pass of the reference    2 P T
    a critic, as a model of its own  8 P T; recomputed 10 P T
    rollouts: prompts, replies       2 P a token; a prompt once for its group

Attention, which grows with the square of the length, is left out: some 10 % at 8,000 tokens of
a 7B model. Lengths are the longest that the configuration allows, so all are upper bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trinity.common.config.memory import usable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config
    from trinity.common.config.memory import TrainerMemory

__all__ = ["StepWork", "arrangements", "colocated_lines", "time_lines", "work_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepWork:
    """What a step computes at most.

    Attributes:
        trained_tokens: of all rows.
        new_tokens: that engines sample.
        train_flops: of the trainer, all ranks together.
        rollout_flops: of the engines.
    """

    trained_tokens: int
    new_tokens: int
    train_flops: float
    rollout_flops: float


def work_of(config: Config, plan: TrainerMemory) -> StepWork:
    """Return what a step of this configuration computes: of mode train, a train step."""
    buffer, samples = config.buffer, config.mode != "train"
    groups, rows = buffer.batch_size, buffer.batch_size * config.algorithm.repeat_times
    if not samples:
        stored = buffer.trainer_input.experience_buffer
        are_pairs = stored is not None and stored.schema_type == "dpo"
        groups, rows = 0, buffer.train_batch_size * (2 if are_pairs else 1)
    prompt = config.model.max_prompt_tokens or 0
    reply = config.model.max_response_tokens or 0
    used, new_tokens = plan.shape.active, rows * reply * samples
    tokens, passes = rows * (prompt + reply), 8 if plan.recomputes else 6
    products = (passes + (2 if plan.has_reference else 0)) * used
    if plan.critic:  # its values are a forward pass; it has no output layer
        products += (passes + 2) * (plan.critic.active - plan.critic.vocab * plan.critic.hidden)
    return StepWork(
        trained_tokens=tokens,
        new_tokens=new_tokens,
        train_flops=float(products * tokens),
        rollout_flops=2.0 * used * (new_tokens + groups * prompt),
    )


def arrangements(
    rollout_s: float, train_s: float, *, engines: int, ranks: int, is_colocated: bool = False
) -> dict[str, tuple[float, float]]:
    """Return seconds of a step and the busy share of the GPUs, for each way to share them.

    Args:
        rollout_s: of a step's rollouts on the GPUs of the engines.
        train_s: of a train step on those of the trainer.
        engines: GPUs of engines.
        ranks: GPUs of the trainer.
        is_colocated: they are the same GPUs; overlapped each side would have half of them.

    >>> arrangements(6.0, 2.0, engines=4, ranks=4)
    {'in turns': (8.0, 0.5), 'overlapped': (6.0, 0.667), 'colocated': (4.0, 1.0)}
    """
    total = max(engines, ranks) if is_colocated else engines + ranks
    work = rollout_s * engines + train_s * ranks  # GPU seconds
    colocated_s = rollout_s + train_s if is_colocated else work / total
    if is_colocated:
        rollout_s *= engines / max(1, total // 2)
        train_s *= ranks / max(1, total - total // 2)
    times = {
        "in turns": rollout_s + train_s,
        "overlapped": max(rollout_s, train_s),
        "colocated": colocated_s,
    }
    if total == 1:  # one GPU has no second half
        times = {"colocated": colocated_s}
    return {
        name: (round(seconds, 3), round(work / (total * seconds), 3))
        for name, seconds in times.items()
    }


def time_lines(
    config: Config,
    plan: TrainerMemory,
    *,
    tflops: float | None,
    tokens_per_s: float | None,
    is_shared: bool = False,
) -> list[str]:
    """Return what a step computes and, at measured speeds, how long it takes.

    Args:
        config: a resolved stage.
        plan: how the trainer holds the model.
        tflops: that a GPU of the trainer reaches; None: nobody measured it.
        tokens_per_s: that an engine samples; None: nobody measured it.
        is_shared: trainer and engine use the same GPUs.
    """
    work = work_of(config, plan)
    trained = f"{work.trained_tokens:,} tokens trained"
    computed = f"trainer {work.train_flops / 1e15:,.1f} PFLOP"
    if config.mode == "train":
        return [f"a train step, at most: {trained}; {computed}"]
    lines = [
        f"a step, at most: {trained}, {work.new_tokens:,} sampled; {computed}, "
        f"engines {work.rollout_flops / 1e15:,.1f}"
    ]
    if tflops is None or tokens_per_s is None or config.mode != "both":
        return lines
    rollout = config.explorer.rollout_model
    rollout_s = work.new_tokens / (rollout.engine_num * tokens_per_s)
    train_s = work.train_flops / (plan.num_ranks * tflops * 1e12)
    lines.append(
        f"at {tflops:g} TFLOP/s of each trainer GPU and {tokens_per_s:,.0f} tokens/s of each "
        f"engine: rollouts {rollout_s:,.1f} s, train step {train_s:,.1f} s"
    )
    found = arrangements(
        rollout_s,
        train_s,
        engines=rollout.engine_num * rollout.tensor_parallel_size,
        ranks=plan.num_ranks,
        is_colocated=is_shared or config.is_colocated,
    )
    if is_shared and not config.is_colocated:  # one GPU, which is busy with either side
        found = {"in turns": found["colocated"]}
    lines += [
        f"{name}: a step takes {seconds:,.1f} s, GPUs are busy {busy:.0%} of it{_HOW[name]}"
        for name, (seconds, busy) in found.items()
    ]
    return [*lines, *_faster(found, weights=2 * plan.shape.parameters)]


def colocated_lines(
    config: Config,
    plan: TrainerMemory,
    *,
    gpu_bytes: int | None,
    num_gpus: int,
    may_shard: bool = False,
) -> list[str]:
    """Return what each GPU holds at most where engines and trainer use all of them in turns.

    Args:
        config: a resolved stage, which need not be colocated.
        plan: how the trainer holds the model.
        gpu_bytes: memory of a GPU.
        num_gpus: of the run.
        may_shard: the file leaves ``trainer.trainer_strategy`` to the default.
    """
    if gpu_bytes is None or config.mode != "both" or not (config.is_colocated or num_gpus > 1):
        return []
    share, words = config.explorer.rollout_model.gpu_memory_utilization, "colocated"
    if not config.is_colocated:
        plan = replace(plan, num_ranks=num_gpus)
        if may_shard:
            plan = replace(plan, strategy=plan.default_strategy(gpu_bytes))
        share, words = max(0.0, usable(gpu_bytes) - plan.at_rest) / gpu_bytes, "mode colocate would"
        words += f" have {num_gpus} ranks and engines"
    awake = plan.at_rest + share * gpu_bytes
    step = plan.peak(config.trainer.max_token_len_per_gpu or 0)
    return [
        f"{words}: {max(awake, step) / 1e9:.1f} GB on each GPU at the peak; "
        f"{awake / 1e9:.1f} GB while engines are awake (the trainer at rest and all that an engine "
        f"takes), {step / 1e9:.1f} GB in a train step (engines asleep) (computed)"
    ]


def _faster(found: Mapping[str, tuple[float, float]], *, weights: int) -> list[str]:
    """Return which arrangement is faster, as far as it does not hang on what nobody measured."""
    if "overlapped" not in found:
        return []
    overlapped_s, gain_s = found["overlapped"][0], found["overlapped"][0] - found["colocated"][0]
    if gain_s < 0.05 * overlapped_s:
        return [
            "overlapped is the faster one: colocated GPUs would gain "
            f"{max(gain_s, 0.0):,.1f} s a step, less than engines take to sleep and wake up"
        ]
    return [
        f"colocated is the faster one as long as engines take less than {gain_s:,.1f} s a step to "
        f"sleep, wake up and load {weights / 1e9:.1f} GB of weights; else overlapped is"
    ]


_HOW = {
    "in turns": "",
    "overlapped": " (sync_offset 1, or sync_style fully_async)",
    "colocated": " (mode colocate: all GPUs do both, in turns)",
}
