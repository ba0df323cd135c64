"""Which runs of a step are trained on."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import RunFailedError
from trinity.explorer.order import RunResult, by_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience

__all__ = ["Kept", "check_failures", "kept_groups", "tell_failures"]

logger = logging.getLogger(__name__)

MIN_RUNS_OF_A_GROUP = 2  # fewer have nothing to be compared with
SHOWN_FAILURES = 3  # kinds of failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What remains of the results."""

    results: tuple[RunResult, ...]
    num_dropped_groups: int


def kept_groups(results: Sequence[RunResult]) -> Kept:
    """Return the runs that ended well, without the groups that too few remain of.

    A failed run is dropped if at least two of its group remain; otherwise its group is.
    """
    groups: dict[int, list[RunResult]] = {}
    for result in by_order(results):
        groups.setdefault(result.order.key.task, []).append(result)
    kept: list[RunResult] = []
    num_dropped = 0
    for group in groups.values():
        good = [result for result in group if result.failure is None]
        is_whole = len(good) == len(group)
        if is_whole or sum(r.order.num_runs for r in good) >= MIN_RUNS_OF_A_GROUP:
            kept.extend(good)
        else:
            num_dropped += 1
    return Kept(results=tuple(kept), num_dropped_groups=num_dropped)


def check_failures(results: Sequence[RunResult], *, max_failed_ratio: float) -> None:
    """Stop the run if too many of these runs failed.

    Raises:
        RunFailedError: more than ``max_failed_ratio`` of them; the message shows the first ones.
    """
    num_runs = sum(result.order.num_runs for result in results)
    failed = [result for result in by_order(results) if result.failure is not None]
    num_failed = sum(result.order.num_runs for result in failed)
    if num_failed <= max_failed_ratio * num_runs:
        return
    raise RunFailedError(
        "\n".join(
            [
                f"{num_failed} of {num_runs} runs failed, and explorer.max_failed_ratio is "
                f"{max_failed_ratio:g}:",
                *(f"  {line}" for line in _told(failed)),
                "Correct the workflow, or raise explorer.max_failed_ratio.",
            ]
        )
    )


def tell_failures(results: Sequence[RunResult], *, what: str) -> None:
    """Log what failed and was dropped, one line for each kind of failure."""
    failed = [result for result in by_order(results) if result.failure is not None]
    if failed:
        num_failed = sum(result.order.num_runs for result in failed)
        lines = "".join(f"\n  {line}" for line in _told(failed))
        logger.warning("%s: %d runs failed and are left out:%s", what, num_failed, lines)


def _told(failed: Sequence[RunResult]) -> list[str]:
    """Return a line for each kind of failure: the first run that met it, and how many did."""
    kinds: dict[tuple[str, ...], list[RunResult]] = {}
    for result in failed:
        kinds.setdefault(_kind(result), []).append(result)
    lines = [_line(results) for results in kinds.values()]
    if len(lines) > SHOWN_FAILURES:
        lines[SHOWN_FAILURES:] = [f"and {len(lines) - SHOWN_FAILURES} other kinds of failure"]
    return lines


def _kind(result: RunResult) -> tuple[str, ...]:
    """Return what equal failures have in common; numbers in a message may differ."""
    failure = result.failure
    assert failure is not None
    message = re.sub(r"\d+", "0", failure.message)
    return failure.outcome.value, failure.plugin, failure.workflow, failure.where, message


def _line(results: Sequence[RunResult]) -> str:
    """Return the first failure of a kind, and how many runs failed alike."""
    failure = results[0].failure
    assert failure is not None
    num_others = sum(result.order.num_runs for result in results) - results[0].order.num_runs
    return failure.line() + (f" (and {num_others} more runs alike)" if num_others else "")


def experiences_of(results: Sequence[RunResult]) -> list[Experience]:
    """Return the experiences in the order of tasks, runs and steps."""
    return [experience for result in results for experience in result.experiences]
