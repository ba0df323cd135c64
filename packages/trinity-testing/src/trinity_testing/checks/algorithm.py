"""What every algorithm must hold: its parts fit each other, and it learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config import AlgorithmConfig
from trinity.common.config.resolve_algorithm import ALGORITHM_PARTS
from trinity.errors import TrinityError

from trinity_testing.check import Check, CheckContext, Evidence, Finding, Skipped
from trinity_testing.learning.curve import GOAL, learning_curve
from trinity_testing.learning.lesson import ready
from trinity_testing.learning.toy_run import resolved_config

if TYPE_CHECKING:
    from trinity.common.config import Problem
    from trinity.extend.component import Component

__all__ = ["checks"]

UNMET = "which no component of the run provides"  # how `trinity config check` words it


def its_parts_exist(component: Component, context: CheckContext) -> Finding | None:
    """Find a default that names a part that no plugin gives, or that cannot be imported."""
    for key, name in _defaults(component, context).items():
        kind = ALGORITHM_PARTS.get(key)
        if kind is None or name is None:
            continue
        try:
            context.manager.load(kind, name)
        except TrinityError as error:
            return Finding(f"its {key}: {error}")
    return None


def its_defaults_are_valid(component: Component, context: CheckContext) -> Finding | None:
    """Find a default that is no setting, or that a run would refuse."""
    cls: Any = context.load(component)
    for key in _defaults(component, context):
        if key not in AlgorithmConfig.model_fields and not hasattr(cls, key):
            return Finding(
                f"default_config() holds {key!r}, which is no key of `algorithm` and no attribute"
            )
    _require_parts(component, context)
    problems = [p for p in _problems(component, context) if UNMET not in p.message]
    return Finding("; ".join(map(str, problems))) if problems else None


def its_needs_are_met(component: Component, context: CheckContext) -> Finding | None:
    """Find a part whose need no other part provides, and of which the algorithm says nothing."""
    _require_parts(component, context)
    undeclared = [
        problem
        for problem in _problems(component, context)
        if UNMET in problem.message
        and not any(repr(word) in problem.message for word in component.spec.needs)
    ]
    return Finding("; ".join(map(str, undeclared))) if undeclared else None


def it_learns(component: Component, context: CheckContext) -> Finding | Evidence | None:
    """Find an algorithm that a tiny model does not improve with, in 60 steps on the CPU."""
    _require_parts(component, context)
    unmet = [p for p in _problems(component, context) if UNMET in p.message]
    if unmet:
        raise Skipped(f"it cannot run yet: {unmet[0]}")
    if _problems(component, context):
        raise Skipped("algorithm.defaults fails")
    curve = learning_curve(component.name, context.manager)
    return Evidence(str(curve)) if curve.steps_to_goal is not None else Finding(str(curve))


def _name(component: Component, context: CheckContext) -> str:
    """Return the name under which the manager finds this very component."""
    try:
        is_found = context.manager.load("algorithm", component.name) is context.load(component)
    except TrinityError:
        is_found = False
    if not is_found:
        raise Skipped(f"the name {component.name!r} means another plugin's algorithm here")
    return component.name


def _defaults(component: Component, context: CheckContext) -> dict[str, Any]:
    cls: Any = context.load(component)
    return dict(cls.default_config())


def _require_parts(component: Component, context: CheckContext) -> None:
    if its_parts_exist(component, context):
        raise Skipped("algorithm.parts fails")


def _problems(component: Component, context: CheckContext) -> list[Problem]:
    """Return what is wrong with ``algorithm`` where a run says little but its name."""
    _, problems = resolved_config(_name(component, context), context.manager)
    return [problem for problem in problems if problem.path.startswith("algorithm")]


KINDS = frozenset({"algorithm"})
checks = (
    Check(
        id="algorithm.parts",
        function=its_parts_exist,
        remedy="Name parts that `trinity plugins list` shows; bring your own by their hooks.",
        kinds=KINDS,
        prepare=ready,
    ),
    Check(
        id="algorithm.defaults",
        function=its_defaults_are_valid,
        remedy="Correct default_config() until a run needs no more than algorithm_type.",
        kinds=KINDS,
    ),
    Check(
        id="algorithm.needs",
        function=its_needs_are_met,
        remedy="Choose parts that provide it; or declare the word in the algorithm's "
        "ComponentSpec(needs=...), so that users are told what to bring.",
        kinds=KINDS,
    ),
    Check(
        id="algorithm.learns",
        function=it_learns,
        remedy=f"See that a better answer gets a larger probability: the reward must reach {GOAL}. "
        "trinity_testing.learning.learning_curve shows each step.",
        kinds=KINDS,
        limit_s=900.0,
    ),
)
