"""Can groups begin one by one, and is a replay buffer read?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.common.config.buffer import ReplayBufferConfig
from trinity.common.config.check_names import named_parts
from trinity.common.config.paths import fields
from trinity.common.sync_policy import begins_groups, policy_of
from trinity.errors import TrinityError
from trinity.extend.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.check_names import NamedPart
    from trinity.common.config.config import Config
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem

_STYLE = "sync_style fully_async"
_OTHER = "or use sync_style fixed"
_EXPERIENCES = "buffer.trainer_input.experience_buffer"


def active_group_problems(config: Config, parts: NamedParts) -> list[Problem]:
    """Return what ``synchronizer.sync_style: fully_async`` cannot go with, or nothing else can."""
    if not begins_groups(config):
        return list(_of_other_styles(config))
    if config.is_plugin_mode:
        what = f"is fully_async, but mode {config.mode} does not start rollouts from tasks."
        return [config.source.problem("synchronizer.sync_style", what, "Leave it out.")]
    if config.mode != "both":
        return []
    return [
        *_of_numbers(config),
        *_of_buffer(config),
        *(problem for part in named_parts(config) for problem in _of_part(config, part, parts)),
    ]


def _of_other_styles(config: Config) -> Iterator[Problem]:
    explorer, policy = config.explorer, policy_of(config)
    asked = {
        "over_rollout.ratio": explorer.over_rollout.ratio > 0,
        "dynamic_timeout.enable": explorer.dynamic_timeout.enable,
    }
    for name, is_asked in asked.items():
        if is_asked and config.mode != "train":
            found = config.source.problem(
                f"explorer.{name}",
                f"cuts off rollouts by the clock, but with sync_style {policy.style} a step waits "
                f"for all its rollouts.",
                "Leave it out, or use sync_style fully_async.",
            )
            yield found if policy.in_rounds else replace(found, severity="not_yet")


def _of_numbers(config: Config) -> Iterator[Problem]:
    interval, most = config.synchronizer.sync_interval, config.explorer.max_inflight_batches
    if interval > most:
        what = f"is {interval}, but after {most} batches (explorer.max_inflight_batches) all "
        what += "groups would wait for a weight sync."
        remedy = f"Use {most} or less, or raise explorer.max_inflight_batches."
        yield config.source.problem("synchronizer.sync_interval", what, remedy)
    if config.synchronizer.sync_offset:
        what = f"is a number of steps that the explorer runs ahead, but {_STYLE} has no such steps."
        remedy = "explorer.max_inflight_batches limits how far the explorer runs ahead."
        yield config.source.problem("synchronizer.sync_offset", what, f"Leave it out; {remedy}")
    size, whole = config.buffer.train_batch_size, config.buffer.batch_size
    whole *= config.algorithm.repeat_times or 1
    if size != whole:
        what = f"is {size}, but {_STYLE} trains buffer.batch_size whole groups at a time, {whole} "
        what += "rollouts."
        yield config.source.problem("buffer.train_batch_size", what, f"Leave it out, {_OTHER}.")


def _of_buffer(config: Config) -> Iterator[Problem]:
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer is not None and buffer.replay_buffer.enable:
        path = f"{_EXPERIENCES}.replay_buffer.enable"
        what = f"is true, but {_STYLE} trains each group once, oldest first."
        yield config.source.problem(path, what, f"Leave it out, {_OTHER}.")


def _of_part(config: Config, part: NamedPart, parts: NamedParts) -> Iterator[Problem]:
    component = parts.find(part.kind, part.name)
    if component is None:
        return
    if part.kind == "sample_strategy" and not KINDS[part.kind].can(component, "in_order"):
        what = f"{part.name} needs all untrained experiences, but {_STYLE} reads the oldest batch."
        yield config.source.problem(part.path, what, f"Use default, {_OTHER}.")
    elif part.kind == "storage" and part.path == f"{_EXPERIENCES}.storage_type":
        can = KINDS[part.kind].abilities_of(component)
        if not (can >= {"in_order", "waiting"} or can >= {"in_order", "groups"}):
            what = f"{part.name} cannot keep groups until they are trained: it must provide "
            what += "in_order and waiting, or in_order and groups."
            yield config.source.problem(part.path, what, f"Use queue, {_OTHER}.")
    elif part.kind in {"experience_operator", "advantage_fn"} and _needs_step(config, part, parts):
        what = f"{part.kind} {part.name} compares the groups of a step with each other, but "
        what += f"{_STYLE} processes each group alone."
        yield config.source.problem(part.path, what, f"Use another, {_OTHER}.")


def _needs_step(config: Config, part: NamedPart, parts: NamedParts) -> bool:
    """Return whether a part says so, the advantage function with its arguments."""
    loaded: Any = parts.load(part.kind, part.name)
    if part.kind == "advantage_fn" and loaded is not None:
        try:
            if loaded.compute_in_trainer():
                return False
            loaded = loaded(**(config.algorithm.advantage_fn_args or {}))
        except (TrinityError, AttributeError, TypeError, ValueError):
            return False  # said where its arguments are checked
    return bool(getattr(loaded, "needs_whole_step", False))


def replay_problems(config: Config) -> list[Problem]:
    """Return a problem for each replay buffer that nothing would read."""
    problems = []
    for path, section, name, _ in fields(config):
        replay = getattr(section, name)
        if not isinstance(replay, ReplayBufferConfig) or not replay.enable:
            continue
        reason = _reason(config, path.rpartition(".")[0])
        if reason:
            what, is_idle = f"is true, but {reason}.", config.mode == "bench"
            found = config.source.problem(f"{path}.enable", what, "Leave it out.")
            problems.append(replace(found, remedy="", severity="notice") if is_idle else found)
    return problems


def _reason(config: Config, buffer_path: str) -> str:
    """Return why a buffer has no use for priorities; empty: it has one."""
    if buffer_path != _EXPERIENCES:
        return f"only {_EXPERIENCES} may have a replay buffer"
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer is not None and buffer.storage_type != "queue":
        return f"a replay buffer needs storage_type queue, and it is {buffer.storage_type}"
    if config.mode == "train" or not config.has_trainer:
        return f"mode {config.mode} has no queue between explorer and trainer"
    return ""
