"""What every task selector must hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trinity_testing.check import Check, CheckContext, Finding
from trinity_testing.checks.exercises import a_selector

if TYPE_CHECKING:
    from trinity.extend.component import Component

__all__ = ["checks"]

NUM_ROWS = 8
ASKED = (3, 1, 3, 4, 5)  # stops inside an epoch after three, and goes beyond the last row


def gives_rows_that_there_are(component: Component, context: CheckContext) -> Finding | None:
    """Find row numbers that no row has, or another count than was asked for."""
    selector = a_selector(component, context, num_rows=NUM_ROWS)
    for count in ASKED:
        rows = selector.get_indices(count)
        if len(rows) != count:
            return Finding(f"asked for {count} rows, it gave {len(rows)}")
        odd = [row for row in rows if not _is_row(row)]
        if odd:
            return Finding(f"of {NUM_ROWS} rows, it gave {odd[0]!r}")
    return None


def state_round_trips(component: Component, context: CheckContext) -> Finding | None:
    """Find a selector that goes on with other rows after its state went into a new instance."""
    first = a_selector(component, context, num_rows=NUM_ROWS)
    for count in ASKED[:3]:
        first.get_indices(count)
    try:
        state = json.loads(json.dumps(first.state_dict()))
    except TypeError as error:
        return Finding(f"json cannot hold its state_dict: {error}")
    second = a_selector(component, context, num_rows=NUM_ROWS)
    second.load_state_dict(state)
    for count in ASKED[3:]:
        rows, resumed = list(first.get_indices(count)), list(second.get_indices(count))
        if rows != resumed:
            return Finding(f"without a stop it goes on with {rows}, after one with {resumed}")
    return None


def _is_row(row: Any) -> bool:
    return isinstance(row, int) and not isinstance(row, bool) and 0 <= row < NUM_ROWS


KINDS = frozenset({"task_selector"})
checks = (
    Check(
        id="task_selector.rows",
        function=gives_rows_that_there_are,
        remedy="Return as many int as are asked for, from 0 to num_rows - 1, and begin anew after "
        "the last.",
        kinds=KINDS,
    ),
    Check(
        id="task_selector.state",
        function=state_round_trips,
        remedy="Keep in state_dict() all that the next rows depend on, as json can hold it.",
        kinds=KINDS,
    ),
)
