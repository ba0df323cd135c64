"""Check what a workflow returned, and fill in what the runtime knows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from trinity.common.experience import EID, Experience
from trinity.errors import WorkflowError

if TYPE_CHECKING:
    from trinity.explorer.order import RunOrder

__all__ = ["finished"]


def finished(returned: Any, *, order: RunOrder, version: int) -> list[Experience]:
    """Return the experiences with eid and action_mask, in the order of runs and steps.

    An experience without texts was built by the workflow itself: it was sampled at the task's
    temperature.

    Args:
        returned: what the workflow returned; anything at all.
        order: the order that it was called with.
        version: the engine's weight version, for experiences that do not say theirs.

    Raises:
        WorkflowError: it is no list of experiences, lengths disagree, a reward is missing or not
            finite, or there are more or fewer runs than were ordered.
    """
    experiences = _checked_list(returned)
    for place, experience in enumerate(experiences):
        _check(experience, place=place)
        if experience.action_mask is None:
            experience.action_mask = torch.ones(experience.response_length, dtype=torch.bool)
        if experience.prompt_text is None and experience.response_text is None:
            experience.temperature = order.task.rollout_args.temperature or 1.0
        experience.info.setdefault("model_version", version)
        experience.info.setdefault("task_index", dict(order.task.index))
    _fill_eids(experiences, order=order)
    return sorted(experiences, key=lambda experience: (experience.eid.run, experience.eid.step))


def _checked_list(returned: Any) -> list[Experience]:
    wanted = "run() must return a list of Experience, at least one."
    if not isinstance(returned, (list, tuple)):
        raise WorkflowError(f"it returned {_described(returned)}. {wanted}")
    if not returned:
        raise WorkflowError(f"it returned an empty list. {wanted}")
    for place, item in enumerate(returned):
        if not isinstance(item, Experience):
            raise WorkflowError(f"item {place} of its list is {_described(item)}. {wanted}")
    return list(returned)


def _check(experience: Experience, *, place: int) -> None:
    try:
        experience.__post_init__()  # fields may have been set since it was built
    except (TypeError, ValueError) as e:
        raise WorkflowError(f"experience {place}: {e}. Correct what run() returns.") from e
    for name, value in (("reward", experience.reward), ("logprobs", experience.logprobs)):
        if value is not None and not _is_finite(value):
            shown = value if isinstance(value, (int, float)) else "NaN or infinite in places"
            raise WorkflowError(
                f"experience {place}: {name} is {shown}. Return finite numbers, or raise "
                f"trinity.errors.EnvError if the run cannot be judged."
            )
    has_signal = any(
        getattr(experience, name) is not None
        for name in ("reward", "token_level_reward", "teacher_logprobs")
    )
    if not has_signal:
        raise WorkflowError(f"experience {place}: reward is None. Set it, or raise an error.")


def _is_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        # Torch gives up the interpreter for such a check; a list of numbers does not.
        return all(map(math.isfinite, value.tolist()))
    return math.isfinite(value)


def _fill_eids(experiences: list[Experience], *, order: RunOrder) -> None:
    batch = int(order.key.batch) if order.key.batch.isdecimal() else order.key.batch
    runs = _runs(experiences, order=order)
    by_run: dict[int, list[Experience]] = {}
    for experience, run in zip(experiences, runs, strict=True):
        by_run.setdefault(run, []).append(experience)
    for run, own in by_run.items():
        given = [experience.eid.step for experience in own]
        steps = given if len(set(given)) == len(given) else range(len(own))
        for experience, step in zip(own, steps, strict=True):
            experience.eid = EID(batch=batch, task=order.key.task, run=run, step=step)


def _runs(experiences: list[Experience], *, order: RunOrder) -> list[int]:
    """Return the run of each experience.

    A call that makes one run has one number. A call that makes several numbers them in ``eid.run``,
    from 0 or from ``run_id_base``; one that does not returns one experience for each.
    """
    first, count = order.key.run, order.num_runs
    if count == 1:
        return [first] * len(experiences)
    given = [experience.eid.run for experience in experiences]
    if len(set(given)) == 1 and len(experiences) == count:
        return list(range(first, first + count))
    start = 0 if set(given) == set(range(count)) else first
    if set(given) != set(range(start, start + count)):
        raise WorkflowError(
            f"it was asked for {count} runs and returned experiences of {len(set(given))}. A "
            f"workflow with can_repeat makes repeat_times runs, and numbers them in eid.run if a "
            f"run has more than one experience."
        )
    return [run - start + first for run in given]


def _described(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
