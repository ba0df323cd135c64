"""What a run without an end cannot have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config import Config, Problem

_RATE = "algorithm.optimizer"


def length_problems(config: Config, *, what_runs: str) -> Iterator[Problem]:
    """Yield what needs the number of all steps where nobody knows it.

    Args:
        config: a resolved configuration of an endless run.
        what_runs: why it has no end, as a clause: "a service runs until it is stopped".
    """
    optimizer = config.algorithm.optimizer
    if not config.has_trainer or config.trainer.total_steps is not None:
        return
    if optimizer.lr_scheduler_type != "constant":
        what = f"is {optimizer.lr_scheduler_type}, which needs the number of all steps."
        remedy = f"{what_runs[0].upper()}{what_runs[1:]}: use constant, or set trainer.total_steps."
        yield config.source.problem(f"{_RATE}.lr_scheduler_type", what, remedy)
    if optimizer.lr_warmup_steps < 0 and optimizer.lr_warmup_steps_ratio > 0:
        what = f"is a fraction of all steps, but {what_runs}."
        remedy = "Set lr_warmup_steps instead, or trainer.total_steps."
        yield config.source.problem(f"{_RATE}.lr_warmup_steps_ratio", what, remedy)
