"""What operators say of the tasks of a step, among their metrics, for the selectors of tasks.

{"selector_metric": {"0": {"indices": [7, 2], "values": [0.5, 1.0]}}}: the rows 7 and 2 of the first
taskset were solved in half and in all of their runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.common.ports import RowValues

if TYPE_CHECKING:
    from collections.abc import Mapping

SELECTOR_METRIC = "selector_metric"  # the published name


def without_feedback(
    metrics: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, RowValues]]:
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
