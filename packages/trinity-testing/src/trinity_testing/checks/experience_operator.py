"""What every experience operator must hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience

from trinity_testing.builders import a_group
from trinity_testing.check import Check, CheckContext, Finding
from trinity_testing.checks.numbers import odd_metric

if TYPE_CHECKING:
    from trinity.extend.component import Component

__all__ = ["checks"]

REWARDS = ((1.0, 0.0, 0.5), (0.0, 0.0, 0.0), (1.0,))


def returns_experiences_and_metrics(component: Component, context: CheckContext) -> Finding | None:
    """Find what is no list of experiences with plain metrics, of many rows, of one, or of none."""
    for rows in (_rows(), _rows()[:1], []):
        kept, metrics = _processed(component, context, rows)
        strange = [row for row in kept if not isinstance(row, Experience)]
        if strange:
            return Finding(f"of {len(rows)} experiences, it returns a {type(strange[0]).__name__}")
        problem = odd_metric(metrics)
        if problem:
            return Finding(f"of {len(rows)} experiences, {problem}")
    return None


def gives_no_row_twice(component: Component, context: CheckContext) -> Finding | None:
    """Find an experience that goes on twice, so that it would be trained twice."""
    kept, _ = _processed(component, context, _rows())
    twice = [count for count in Counter(map(id, kept)).values() if count > 1]
    return Finding(f"{len(twice)} experiences go on more than once") if twice else None


def unmasks_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a token of somebody else that is trained after the operator."""
    rows = _rows()
    for row in rows:
        row.action_mask[0] = False
    before = {row.eid.uid: row.action_mask.clone() for row in rows}
    kept, _ = _processed(component, context, rows)
    for row in kept:
        mask_R = before.get(row.eid.uid)
        is_same = mask_R is not None and row.action_mask.shape == mask_R.shape
        if is_same and bool((row.action_mask & ~mask_R).any()):
            return Finding("a token that the model did not choose is trained")
    return None


def _rows() -> list[Experience]:
    return [row for task, group in enumerate(REWARDS) for row in a_group(group, task=task)]


def _processed(
    component: Component, context: CheckContext, rows: list[Experience]
) -> tuple[list[Any], Any]:
    operator = context.build(component)
    try:
        returned: Any = operator.process(rows)
    finally:
        operator.close()
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise TypeError(f"process() must return (list, metrics), not {type(returned).__name__}")
    return list(returned[0]), returned[1]


KINDS = frozenset({"experience_operator"})
checks = (
    Check(
        id="experience_operator.returns",
        function=returns_experiences_and_metrics,
        remedy="Return the experiences that go on, none of none, and a dict of plain floats.",
        kinds=KINDS,
    ),
    Check(
        id="experience_operator.nothing_twice",
        function=gives_no_row_twice,
        remedy="Return each experience once; if you mean more of it, add a copy.deepcopy().",
        kinds=KINDS,
    ),
    Check(
        id="experience_operator.mask",
        function=unmasks_nothing,
        remedy="Leave action_mask, or mask more; what is masked has no log-probability.",
        kinds=KINDS,
    ),
)
