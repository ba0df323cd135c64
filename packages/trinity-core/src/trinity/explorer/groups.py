"""Which runs of a step are trained on."""

from __future__ import annotations

import logging
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.common.outcome import Outcome
from trinity.errors import RunFailedError
from trinity.explorer.requests import RolloutResult, by_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.common.experience import Experience
    from trinity.common.outcome import RunFailure


logger = logging.getLogger(__name__)

MIN_RUNS_OF_A_GROUP = 2  # fewer have nothing to be compared with
SHOWN_FAILURES = 3  # kinds of failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What remains of the results."""

    results: tuple[RolloutResult, ...]
    num_dropped_groups: int


def kept_groups(results: Sequence[RolloutResult]) -> Kept:
    """Return the runs that ended well, without the groups that too few remain of.

    A failed run is dropped if at least two of its group remain; otherwise its group is.
    """
    groups: dict[int, list[RolloutResult]] = {}
    for result in by_order(results):
        groups.setdefault(result.request.key.task, []).append(result)
    kept: list[RolloutResult] = []
    num_dropped = 0
    for group in groups.values():
        good = [result for result in group if result.failure is None]
        is_whole = len(good) == len(group)
        if is_whole or sum(r.request.num_runs for r in good) >= MIN_RUNS_OF_A_GROUP:
            kept.extend(good)
        else:
            num_dropped += 1
    return Kept(results=tuple(kept), num_dropped_groups=num_dropped)


def is_cut(result: RolloutResult) -> bool:
    """Return whether nobody wanted to wait for a run any longer."""
    return result.failure is not None and result.failure.is_cut


def check_failures(
    results: Sequence[RolloutResult],
    *,
    max_failed_ratio: float,
    earlier: Sequence[Sequence[int]] = (),
) -> None:
    """Stop the run if too many of these runs failed.

    Args:
        results: of a step, or of an evaluation.
        max_failed_ratio: of the runs that may fail.
        earlier: runs and failed runs of further tasks, which are counted in; what follows is not.

    Raises:
        RunFailedError: some failed, and more than may; the message shows the first ones.
    """
    failed = _failed(results)
    num_failed = _num_runs(failed) + sum(counts[1] for counts in earlier)
    num_runs = sum(r.request.num_runs for r in results) + sum(counts[0] for counts in earlier)
    if not failed or num_failed <= max_failed_ratio * num_runs:
        return
    also = f" (with the {len(earlier)} tasks before this step)" if earlier else ""
    raise RunFailedError(
        "\n".join(
            [
                f"{num_failed} of {num_runs} rollouts failed{also}, and explorer.max_failed_ratio "
                f"is {max_failed_ratio:g}:",
                *(f"  {line}" for line in _told(failed)),
                "Correct the workflow, or raise explorer.max_failed_ratio.",
            ]
        )
    )


def tell_failures(results: Sequence[RolloutResult], *, what: str) -> None:
    """Log what failed and was dropped, one line for each kind of failure."""
    failed = _failed(results)
    if failed:
        num_failed = _num_runs(failed)
        words = "rollout" if num_failed == 1 else "rollouts"
        lines = "".join(f"\n  {line}" for line in _told(failed))
        logger.warning("%s: %d %s failed, not trained on:%s", what, num_failed, words, lines)


def tell_retries(results: Sequence[RolloutResult], *, what: str, said: set[str]) -> None:
    """Log what failed and went well when it was made again, each kind of failure once.

    Args:
        results: of a step, or of an evaluation.
        what: its name.
        said: the kinds that were told before; those of these results are added.
    """
    good = [result for result in by_order(results) if result.failure is None]
    retried = [(failure, r.request.num_runs) for r in good for failure in r.retried]
    new = [(failure, count) for failure, count in retried if str(_kind(failure)) not in said]
    if new:
        num_new = _num_runs(new)
        words = "attempt" if num_new == 1 else "attempts"
        lines = "".join(f"\n  {line}" for line in _told(new))
        logger.warning(
            "%s: %d %s failed, and retries succeeded. Not logged for later steps.%s",
            *(what, num_new, words, lines),
        )
        said.update(str(_kind(failure)) for failure, _ in new)


class FailedAttempts:
    """Counts the attempts of a run that failed, also those whose retry went well.

    Attributes:
        count: how many there were.
        first: the first one, as a line for a person; "": there was none.
    """

    def __init__(self, count: int = 0, first: str = "") -> None:
        self.count, self.first = count, first

    def note(self, results: Sequence[RolloutResult]) -> None:
        """Count those of a step, or of an evaluation."""
        failed = [(one, r.request.num_runs) for r in by_order(results) for one in _attempts(r)]
        self.count += _num_runs(failed)
        if failed and not self.first:
            self.first = failed[0][0].line()


def _attempts(result: RolloutResult) -> list[RunFailure]:
    """Return how attempts at a request failed, in their order."""
    last = [] if result.failure is None or result.failure.is_cut else [result.failure]
    return [*result.retried, *last]


def _failed(results: Sequence[RolloutResult]) -> list[tuple[RunFailure, int]]:
    """Return the failures that runs ended with, each with the number of its runs."""
    return [(r.failure, r.request.num_runs) for r in by_order(results) if r.failure is not None]


def _num_runs(failed: Sequence[tuple[RunFailure, int]]) -> int:
    return sum(count for _, count in failed)


def _told(failed: Sequence[tuple[RunFailure, int]]) -> list[str]:
    """Return a line for each kind of failure: the first run that met it, and how many did."""
    kinds: dict[tuple[str, ...], list[tuple[RunFailure, int]]] = {}
    for failure, count in failed:
        kinds.setdefault(_kind(failure), []).append((failure, count))
    lines = [_line(alike) for alike in kinds.values()]
    num_others = len(lines) - SHOWN_FAILURES
    if num_others > 0:
        kinds_of = "kind" if num_others == 1 else "kinds"
        lines[SHOWN_FAILURES:] = [f"and {num_others} other {kinds_of} of failure, in trinity.log"]
    return lines


def _kind(failure: RunFailure) -> tuple[str, ...]:
    """Return what equal failures have in common; numbers in a message may differ."""
    message = re.sub(r"\d+", "0", failure.message)
    return failure.outcome.value, failure.plugin, failure.workflow, failure.where, message


def _line(alike: Sequence[tuple[RunFailure, int]]) -> str:
    """Return the first failure of a kind, and how many more runs met it."""
    first = alike[0][0]
    num_others = _num_runs(alike) - 1  # a request of several runs fails as one, and names the first
    runs = "run" if num_others == 1 else "runs"
    return first.line() + (f" (and {num_others} more {runs} alike)" if num_others else "")


def experiences_of(results: Sequence[RolloutResult]) -> list[Experience]:
    """Return the experiences in the order of tasks, runs and steps."""
    return [experience for result in results for experience in result.experiences]


class FailureWatch:
    """Counts the failed runs of each step, and of the tasks before it where the step is short.

    So one bad task in a last batch of one is one of many, and no reason to end the run.

    Args:
        num_tasks: that are counted together at least, where so many were run.
        max_failed_ratio: of their runs that may fail.
    """

    def __init__(self, *, num_tasks: int, max_failed_ratio: float) -> None:
        self._num_tasks = num_tasks
        self._max_failed_ratio = max_failed_ratio
        self._earlier: deque[tuple[int, int, int]] = deque(maxlen=num_tasks)

    def check(self, results: Sequence[RolloutResult]) -> None:
        """Take a look at what there is of a step.

        Raises:
            RunFailedError: too many of these runs failed, those of earlier tasks counted in; or all
                of them raised, and went well only when they were made again.
        """
        counts = _counts_by_task(results)
        num_missing = max(0, self._num_tasks - len(counts))
        earlier = list(self._earlier)[max(0, len(self._earlier) - num_missing) :]
        check_failures(results, max_failed_ratio=self._max_failed_ratio, earlier=earlier)
        counted = [*earlier, *counts]
        all_raised = all(num_raised == num_runs for num_runs, _, num_raised in counted)
        if len(counted) >= self._num_tasks and all_raised and self._max_failed_ratio < 1:
            raised = [
                (one, r.request.num_runs) for r in by_order(results) for one in _raised(r)[:1]
            ]
            raise RunFailedError(
                "\n".join(
                    [
                        f"each rollout of the last {len(counted)} tasks raised an error before a "
                        f"retry succeeded, so only answers that raise none would be trained on:",
                        *(f"  {line}" for line in _told(raised)),
                        "Correct the workflow or the reward function. If a retry is the remedy, "
                        "raise trinity.errors.EnvError there, or set explorer.max_failed_ratio: 1.",
                    ]
                )
            )

    def is_enough(self, results: Sequence[RolloutResult]) -> bool:
        """Return whether these and the earlier tasks are as many as are counted together."""
        return len(self._earlier) + len(_counts_by_task(results)) >= self._num_tasks

    def note(self, results: Sequence[RolloutResult]) -> None:
        """Take the tasks of a step that ended as the ones before the next step."""
        self._earlier.extend(_counts_by_task(results))

    def state_dict(self) -> list[list[int]]:
        """Return for each of the last tasks how many runs it had, failed, and raised."""
        return [list(counts) for counts in self._earlier]

    def load_state_dict(self, state: Iterable[Sequence[int]]) -> None:
        """Go on from there."""
        self._earlier.clear()
        for num_runs, num_failed, *raised in state:  # a run of an earlier version has two of them
            self._earlier.append((num_runs, num_failed, raised[0] if raised else 0))


def _counts_by_task(results: Iterable[RolloutResult]) -> list[tuple[int, int, int]]:
    """Return for each task, in their order, how many runs it had, failed, and raised an error."""
    counts: dict[int, tuple[int, int, int]] = {}
    for result in results:
        num = result.request.num_runs
        num_runs, num_failed, num_raised = counts.get(result.request.key.task, (0, 0, 0))
        counts[result.request.key.task] = (
            num_runs + num,
            num_failed + num * (result.failure is not None),
            num_raised + num * bool(_raised(result)),
        )
    return [counts[task] for task in sorted(counts)]


def _raised(result: RolloutResult) -> list[RunFailure]:
    """Return the attempts in which the workflow or its reward function raised an error."""
    return [one for one in _attempts(result) if one.outcome is Outcome.WORKFLOW_ERROR]
