"""Is ``replay_buffer`` switched on only where something reads it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.buffer import ReplayBufferConfig
from trinity.common.config.paths import fields
from trinity.common.config.problem import Problem

if TYPE_CHECKING:
    from trinity.common.config.config import Config

__all__ = ["replay_problems"]

_EXPERIENCES = "buffer.trainer_input.experience_buffer"


def replay_problems(config: Config) -> list[Problem]:
    """Return a problem for each replay buffer that nothing would read."""
    problems = []
    for path, section, name, _ in fields(config):
        replay = getattr(section, name)
        if not isinstance(replay, ReplayBufferConfig) or not replay.enable:
            continue
        reason = _reason(config, path.rpartition(".")[0])
        if reason:
            problems.append(
                Problem(
                    path=config.source.written(f"{path}.enable"),
                    message=f"is true, but {reason}.",
                    remedy="" if config.mode == "bench" else "Leave it out.",
                    severity="notice" if config.mode == "bench" else "error",
                    where=config.source.where(f"{path}.enable"),
                )
            )
    return problems


def _reason(config: Config, buffer_path: str) -> str:
    """Return why a buffer has no use for priorities; empty: it has one."""
    if buffer_path != _EXPERIENCES:
        return f"only {_EXPERIENCES} goes by priority"
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer is not None and buffer.storage_type != "queue":
        return f"only a queue goes by priority, and storage_type is {buffer.storage_type}"
    if config.mode == "train" or not config.has_trainer:
        return f"in mode {config.mode} no queue lies between an explorer and a trainer"
    return ""
