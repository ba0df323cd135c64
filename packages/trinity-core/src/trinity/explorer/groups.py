"""Which runs of a step are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import RunFailedError
from trinity.explorer.order import RunResult, by_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience

__all__ = ["Kept", "check_failures", "kept_groups"]

MIN_RUNS_OF_A_GROUP = 2  # fewer have nothing to be compared with
SHOWN_FAILURES = 3


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
    shown = [f"  {r.failure.line()}" for r in failed[:SHOWN_FAILURES] if r.failure is not None]
    if len(failed) > SHOWN_FAILURES:
        shown.append(f"  and {len(failed) - SHOWN_FAILURES} more")
    raise RunFailedError(
        "\n".join(
            [
                f"{num_failed} of {num_runs} runs failed, and explorer.max_failed_ratio is "
                f"{max_failed_ratio:g}:",
                *shown,
                "Correct the workflow, or raise explorer.max_failed_ratio.",
            ]
        )
    )


def experiences_of(results: Sequence[RunResult]) -> list[Experience]:
    """Return the experiences in the order of tasks, runs and steps."""
    return [experience for result in results for experience in result.experiences]
