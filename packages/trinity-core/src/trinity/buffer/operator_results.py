"""What an experience operator gave back: the experiences that it leaves, metrics, and feedback."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience
from trinity.common.ports import RowValues
from trinity.errors import PluginError
from trinity.extend.manager import owner_label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.metrics import Metrics
    from trinity.common.ports import OperatorPort

SELECTOR_METRIC = "selector_metric"  # the published name


def checked(operator: OperatorPort, returned: object) -> tuple[list[Experience], Metrics]:
    """Return what an operator made of the experiences.

    Raises:
        PluginError: it returned something else.
    """
    given = "None" if returned is None else f"a {type(returned).__name__}"
    if isinstance(returned, (tuple, list)) and len(returned) == 2:
        kept, metrics = returned
        if isinstance(kept, (list, tuple)) and isinstance(metrics, dict):
            return _each_once(operator, kept), metrics
        if isinstance(returned, tuple):
            given = f"a {type(kept).__name__} and a {type(metrics).__name__}"
    raise PluginError(
        f"experience operator {owner_label(operator)} returned {given}. Return a list of "
        f"experiences and a dict of metrics."
    )


def _each_once(operator: OperatorPort, kept: Sequence[object]) -> list[Experience]:
    """Return the experiences that an operator leaves.

    Raises:
        PluginError: one is none, or stands there twice and would be trained twice.
    """
    seen: set[int] = set()
    rows: list[Experience] = []
    for row in kept:
        if not isinstance(row, Experience):
            wrong = f"a {type(row).__name__} among the experiences. Return experiences alone"
        elif id(row) in seen:
            wrong = f"the experience {row.eid} twice. Return each once, or a copy.deepcopy() of it"
        else:
            seen.add(id(row))
            rows.append(row)
            continue
        raise PluginError(f"experience operator {owner_label(operator)} returned {wrong}.")
    return rows


def without_feedback(metrics: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, RowValues]]:
    """Return an operator's metrics (Any: of any form), and apart what it says of its tasks.

    What stands under the name in another form stays a metric.
    """
    given = metrics.get(SELECTOR_METRIC)
    if not isinstance(given, dict):
        return dict(metrics), {}
    outcomes = {str(taskset): _row_values(entry) for taskset, entry in given.items()}
    whole = {taskset: rows for taskset, rows in outcomes.items() if rows is not None}
    if len(whole) < len(given):
        return dict(metrics), {}
    return {name: value for name, value in metrics.items() if name != SELECTOR_METRIC}, whole


def _row_values(entry: Any) -> RowValues | None:  # Any: what somebody's operator returned
    try:
        indices = [int(index) for index in entry["indices"]]
        values = [float(value) for value in entry["values"]]
    except (KeyError, TypeError, ValueError):
        return None
    is_whole = len(indices) == len(values) and all(map(math.isfinite, values))
    return RowValues(indices=indices, values=values) if is_whole else None
