"""What workflow and judge functions return, made into a reward and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.workflow import number_of
from trinity.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience

    from trinity_agents_agentscope.functions import UserFunction

__all__ = ["Judged", "judged", "rewarded", "worked"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """How a run did."""

    reward: float
    metrics: Mapping[str, float]


def worked(output: Any, *, by: UserFunction) -> Any:  # Any: of the user
    """Return the output of a workflow function.

    Raises:
        WorkflowError: it is no ``WorkflowOutput``.
    """
    if not (hasattr(output, "reward") and hasattr(output, "response")):
        raise WorkflowError(
            f"{by.label} returned a {type(output).__name__}. Return "
            "agentscope.tuner.WorkflowOutput(reward=..., response=...)."
        )
    return output


def judged(
    output: Any,  # Any: a WorkflowOutput
    verdict: Any,  # Any: a JudgeOutput; None: nobody judges
    *,
    by: UserFunction,
    judge: UserFunction | None,
) -> Judged:
    """Return the reward, a judge's before the workflow's own, and the metrics of both.

    Raises:
        WorkflowError: nobody gave a reward, or what was given is no number.
    """
    source, giver = (output, by) if judge is None else (verdict, judge)
    reward = getattr(source, "reward", None)
    if reward is None:
        raise WorkflowError(_without_reward(by=by, judge=judge))
    remedy = "Give a finite number."
    return Judged(
        reward=number_of(reward, what=f"the reward of {giver.label}", remedy=remedy),
        metrics={**_metrics(output, by=by), **_metrics(verdict, by=judge or by)},
    )


def rewarded(
    experiences: Sequence[Experience], result: Judged, *, by: UserFunction
) -> list[Experience]:
    """Return the experiences with the run's reward; the last one has its metrics too.

    Raises:
        WorkflowError: there are none: the model was not asked.
    """
    if not experiences:
        raise WorkflowError(
            f"{by.label} gave a reward and asked its model nothing, so there is nothing to train "
            "on. Use the model that it is called with."
        )
    for experience in experiences:
        experience.reward = result.reward
    last = experiences[-1]
    last.metrics = {**(last.metrics or {}), **result.metrics}
    return list(experiences)


def _without_reward(*, by: UserFunction, judge: UserFunction | None) -> str:
    if judge is not None:
        return f"{judge.label} gave no reward. Return agentscope.tuner.JudgeOutput(reward=...)."
    return (
        f"{by.label} gave no reward, and there is no judge function. Return "
        "WorkflowOutput(reward=...), or give tune() a judge_func."
    )


def _metrics(output: Any, *, by: UserFunction) -> dict[str, float]:
    given = getattr(output, "metrics", None) or {}
    remedy = "Give numbers, by name."
    if not hasattr(given, "items"):
        raise WorkflowError(f"the metrics of {by.label} are a {type(given).__name__}. {remedy}")
    return {
        str(name): number_of(value, what=f"metric {name!r} of {by.label}", remedy=remedy)
        for name, value in given.items()
    }
