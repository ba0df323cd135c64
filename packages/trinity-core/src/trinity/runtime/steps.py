"""One step of a part each; an error of its code says which step it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.runtime.boundary import boundary

if TYPE_CHECKING:
    from trinity.common.metrics import Metrics
    from trinity.explorer.explorer import ExploreResult
    from trinity.runtime.roles import ExplorerRole, TrainerRole

__all__ = ["evaluated", "explored", "trained"]


def explored(explorer: ExplorerRole, *, step: int) -> ExploreResult:
    """Return what an explore step gave.

    Raises:
        StopIteration: there are no more tasks.
        TrinityError: the step failed.
    """
    with boundary(f"explore step {step}"):
        return explorer.explore_step(step)


def evaluated(explorer: ExplorerRole, *, step: int) -> Metrics:
    """Return the metrics of the evaluation after an explore step.

    Raises:
        TrinityError: it failed.
    """
    with boundary(f"the evaluation after step {step}"):
        return explorer.evaluate(step)


def trained(trainer: TrainerRole, experiences: Any, *, step: int) -> Metrics:
    """Return the metrics of an optimizer step (Any: the role's batch).

    Raises:
        RuntimeError: a part let a StopIteration out, which elsewhere means that nothing is left.
    """
    try:
        return trainer.train_step(experiences, step=step)
    except StopIteration as error:
        raise RuntimeError("a part of the trainer raised StopIteration") from error
