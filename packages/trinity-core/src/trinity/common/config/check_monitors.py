"""Can each monitor of a run be told from the others, and is there what they are to show?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config

__all__ = ["monitor_problems"]


def monitor_problems(config: Config) -> Iterator[Problem]:
    """Yield what is wrong with ``monitor`` beyond names and arguments."""
    own = config.monitor
    seen = {"jsonl": "written in any case", own.monitor_type: "monitor.monitor_type"}
    for index, one in enumerate(own.also):
        path = f"monitor.also.{index}.monitor_type"
        if not one.monitor_type:
            yield _problem(config, path, "is missing.", "Name the monitor.")
        elif one.monitor_type in seen:
            message = f"{one.monitor_type} is {seen[one.monitor_type]} already."
            yield _problem(config, path, message, "Leave the entry out.")
        seen.setdefault(one.monitor_type, f"monitor.also.{index}")
    if own.sample_interval and config.has_trainer and not config.buffer.record_samples:
        yield _problem(
            config,
            "monitor.sample_interval",
            f"is {own.sample_interval}, but monitors show what buffer.record_samples keeps, which "
            "is off.",
            "Turn buffer.record_samples on, or leave sample_interval out.",
        )


def _problem(config: Config, path: str, message: str, remedy: str) -> Problem:
    return Problem(
        path=config.source.written(path),
        message=message,
        remedy=remedy,
        where=config.source.where(path) or config.source.where(path.rpartition(".")[0]),
        severity="error",
    )
