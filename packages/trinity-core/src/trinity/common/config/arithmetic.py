"""How much a run reads, generates and trains on, in sentences."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.sync_policy import Consume, policy_of

if TYPE_CHECKING:
    from trinity.common.config.buffer import TasksetConfig
    from trinity.common.config.config import Config


def arithmetic(config: Config) -> list[str]:
    """Return what a resolved configuration multiplies out to, one sentence per line."""
    lines = []
    if config.mode in {"both", "explore"}:
        lines += [_explore_step(config), *_steps(config)]
    if config.mode in {"both", "train"}:
        lines += [_train_batch(config), _tokens(config)]
    if config.mode == "both":
        lines.append(_sync(config))
    if config.shares_run_directory:
        lines.append(_separate_run(config))
    return lines


def _explore_step(config: Config) -> str:
    tasks, runs = config.buffer.batch_size, config.algorithm.repeat_times or 1
    turns = _most_turns(config)
    if turns > 1:
        return (
            f"{tasks} tasks x {runs} runs x up to {turns} steps = "
            f"up to {tasks * runs * turns} experiences a step"
        )
    return f"{tasks} tasks x {runs} runs = {tasks * runs} experiences a step"


def _most_turns(config: Config) -> int:
    """Return how many experiences a run may give: its steps, where each is one."""
    if not config.explorer.rollout_model.enable_history:  # which workflows of many steps need
        return 1
    turns = [t.workflow_args.get("max_env_steps") for t in config.buffer.explorer_input.tasksets]
    return max((turn for turn in turns if isinstance(turn, int)), default=1)


def _steps(config: Config) -> list[str]:
    buffer = config.buffer
    if buffer.total_steps is not None:
        return [f"{buffer.total_steps} steps (buffer.total_steps)"]
    counts = [_num_rows(taskset) for taskset in buffer.explorer_input.tasksets]
    if not counts or None in counts:
        return [f"{_epochs(buffer.total_epochs)} of tasks; the run counts them at its start"]
    rows = sum(count for count in counts if count is not None)
    steps = math.ceil(rows * buffer.total_epochs / buffer.batch_size)
    epochs = _epochs(buffer.total_epochs)
    return [f"{rows} rows x {epochs} / {buffer.batch_size} tasks a step = {steps} steps"]


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _num_rows(taskset: TasksetConfig) -> int | None:
    file = Path(taskset.path or "")
    if file.suffix != ".jsonl" or not os.path.isfile(file):
        return None
    with file.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


def _train_batch(config: Config) -> str:
    size = config.buffer.train_batch_size
    made = config.buffer.batch_size * (config.algorithm.repeat_times or 1)
    if config.mode == "train" or _most_turns(config) > 1:
        return f"{size} experiences a train step"
    if made % size == 0:
        count = made // size
        return f"{size} experiences a train step, {count} train step{'s'[: count > 1]} a step"
    each = f"{math.ceil(made / size)}" if policy_of(config).in_rounds else f"{made / size:.2f}"
    last = f", the last with {made % size}" if policy_of(config).in_rounds else ""
    return f"{size} experiences a train step, {each} train steps a step{last}"


def _tokens(config: Config) -> str:
    model = config.model
    longest = (model.max_prompt_tokens or 0) + (model.max_response_tokens or 0)
    budget = config.trainer.max_token_len_per_gpu or longest
    return (
        f"rows of up to {model.max_prompt_tokens} + {model.max_response_tokens} = {longest} tokens "
        f"in micro-batches of up to {budget} tokens"
    )


def _sync(config: Config) -> str:
    policy, method = policy_of(config), config.synchronizer.sync_method
    interval = policy.pull_every or policy.publish_every
    if policy.consume is not Consume.ROWS:
        ahead = f", the explorer runs {policy.offset} ahead" if policy.offset else ""
        return f"weight sync every {_steps_of(interval)} ({method}){ahead}"
    side = "explore " if policy.pulls_at_barrier else "train "
    return f"weight sync every {_steps_of(interval, side)} ({method})"


def _separate_run(config: Config) -> str:
    explores = config.mode == "explore"
    if not config.is_standalone:
        return f"each experience of the SQL buffer is {'kept' if explores else 'trained once'}"
    policy = policy_of(config)
    interval = policy.pull_every if explores else policy.publish_every
    does = "pulls the newest weights" if explores else "publishes its weights"
    return (
        f"the {'explorer' if explores else 'trainer'} {does} every {_steps_of(interval)} of its own"
    )


def _steps_of(interval: int | None, side: str = "") -> str:
    """Return an interval in words.

    >>> _steps_of(1, "train "), _steps_of(2)
    ('train step', '2 steps')
    """
    return f"{side}step" if interval == 1 else f"{interval} {side}steps"
