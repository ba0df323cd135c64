"""Make runs whose answer could not be judged failed runs, and keep the others of their call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.common.rewards.calling import NOT_JUDGED
from trinity.errors import RunFailedError
from trinity.explorer.failure import not_judged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.explorer.order import RunReport


def without_cut_runs(results: Sequence[RunReport], *, can_fail: bool) -> list[RunReport]:
    """Return the reports, each run that could not be judged in one of its own, as failed.

    Args:
        results: of calls, each of one run or of several.
        can_fail: a run may fail; otherwise the first one stops the whole.

    Raises:
        RunFailedError: a run could not be judged, and none may fail.
    """
    apart = [report for result in results for report in _apart(result)]
    if not can_fail:
        for report in apart:
            if report.failure is not None and not report.failure.is_cut:
                line = report.failure.line()
                raise RunFailedError(f"a run failed, and explorer.on_failed_run is fail. {line}")
    return apart


def _apart(result: RunReport) -> list[RunReport]:
    marked = [exp for exp in result.experiences if NOT_JUDGED in exp.info]
    said = {exp.eid.run: str(exp.info[NOT_JUDGED]) for exp in marked}
    if not said:
        return [result]
    order, kept = result.order, []
    num_kept = order.num_runs - len(said)
    if num_kept:
        good = tuple(exp for exp in result.experiences if exp.eid.run not in said)
        kept = [replace(result, order=replace(order, num_runs=num_kept), experiences=good)]
    cut = [
        replace(
            result,
            order=(own := replace(order, key=replace(order.key, run=run), num_runs=1)),
            experiences=(),
            failure=not_judged(own, message=message, attempt=len(result.retried) + 1),
        )
        for run, message in said.items()
    ]
    return [*kept, *cut]
