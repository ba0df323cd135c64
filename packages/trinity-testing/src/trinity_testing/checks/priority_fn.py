"""What every priority function of a replay buffer must hold."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from trinity.common.ports import PriorityFn
from trinity.extend import KINDS as ALL

from trinity_testing.builders import an_experience
from trinity_testing.check import Check, CheckContext, Finding, Skipped

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.extend.component import Component

__all__ = ["checks"]

NUM_USES = 3


def judges_any_experiences(component: Component, context: CheckContext) -> Finding | None:
    """Find a priority that is no finite number, or a word instead of yes and no."""
    function = context.build(component)
    for info in ({}, {"model_version": None}, {"model_version": 7, "use_count": 2}):
        returned: Any = function([an_experience(info=dict(info))])
        if not (isinstance(returned, tuple) and len(returned) == 2):
            return Finding(f"it returns {returned!r:.60}, not a priority and whether to keep them")
        priority, is_kept = returned
        if isinstance(priority, bool) or not isinstance(priority, (int, float)):
            return Finding(f"the priority of {info} is a {type(priority).__name__}")
        if not math.isfinite(priority):
            return Finding(f"the priority of {info} is {priority}")
        if not isinstance(is_kept, bool):
            return Finding(f"whether to keep {info} is {is_kept!r}, neither True nor False")
    return None


def state_round_trips(component: Component, context: CheckContext) -> Finding | None:
    """Find a function that judges otherwise after its state went into a new instance."""
    first, second = context.build(component), context.build(component)
    if not isinstance(first, PriorityFn) and not ALL["priority_fn"].can(component, "state"):
        raise Skipped("it has no state")
    for use in range(NUM_USES):
        first(_used(use))
    try:
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    except TypeError as error:
        return Finding(f"json cannot hold its state_dict: {error}")
    plain, resumed = first(_used(NUM_USES)), second(_used(NUM_USES))
    if plain == resumed:
        return None
    return Finding(f"without a stop it judges {plain}, after one {resumed}")


def _used(use_count: int) -> list[Experience]:
    return [an_experience(info={"model_version": 5, "use_count": use_count})]


KINDS = frozenset({"priority_fn"})
checks = (
    Check(
        id="priority_fn.finite",
        function=judges_any_experiences,
        remedy="Return (float, bool) for any experience; info may lack model_version.",
        kinds=KINDS,
    ),
    Check(
        id="priority_fn.state",
        function=state_round_trips,
        remedy="Keep in state_dict() all that the next judgement depends on, as json can hold it.",
        kinds=KINDS,
    ),
)
