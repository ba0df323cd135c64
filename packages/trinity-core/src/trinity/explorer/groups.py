"""Which runs of a step are trained on, their metrics, and when failures end the run."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import RunFailedError
from trinity.explorer.failure import failure_lines, kind_of_failure
from trinity.explorer.requests import RolloutResult, by_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.outcome import RunFailure

logger = logging.getLogger(__name__)

MIN_RUNS_OF_A_GROUP = 2  # fewer have nothing to be compared with


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
    return result.failure is not None and result.failure.is_cut


def check_failures(
    results: Sequence[RolloutResult],
    *,
    max_failed_ratio: float,
    earlier: Sequence[tuple[int, int]] = (),
) -> None:
    """Stop the run if too many of these runs failed.

    Args:
        results: of a step, or of an evaluation.
        max_failed_ratio: of the runs that may fail.
        earlier: runs and failed runs of further tasks, which are counted in.

    Raises:
        RunFailedError: some failed, and more than may; the message shows the first ones.
    """
    failed = _failed(results)
    num_failed = _num_runs(failed) + sum(count for _, count in earlier)
    num_runs = sum(r.request.num_runs for r in results) + sum(count for count, _ in earlier)
    if not failed or num_failed <= max_failed_ratio * num_runs:
        return
    also = f" (with the {len(earlier)} tasks before this step)" if earlier else ""
    raise RunFailedError(
        "\n".join(
            [
                f"{num_failed} of {num_runs} rollouts failed{also}, and explorer.max_failed_ratio "
                f"is {max_failed_ratio:g}:",
                *(f"  {line}" for line in failure_lines(failed)),
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
        lines = "".join(f"\n  {line}" for line in failure_lines(failed))
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
    new = [
        (failure, count) for failure, count in retried if str(kind_of_failure(failure)) not in said
    ]
    if new:
        num_new = _num_runs(new)
        words = "attempt" if num_new == 1 else "attempts"
        lines = "".join(f"\n  {line}" for line in failure_lines(new))
        logger.warning(
            "%s: %d %s failed, and retries succeeded. Not logged for later steps.%s",
            *(what, num_new, words, lines),
        )
        said.update(str(kind_of_failure(failure)) for failure, _ in new)


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


def experiences_of(results: Sequence[RolloutResult]) -> list[Experience]:
    """Return the experiences in the order of tasks, runs and steps."""
    return [experience for result in results for experience in result.experiences]


def counts_of(results: Sequence[RolloutResult]) -> Metrics:
    """Return what good runs gave, and how many runs failed, or went well after a retry."""
    good = [result for result in results if result.failure is None]
    experiences = experiences_of(good)
    num_tokens = sum(int(e.action_mask.sum()) for e in experiences if e.action_mask is not None)
    failed = [result for result in results if result.failure is not None]
    again = [result for result in good if result.retried]
    return {
        "rollout/num_runs": float(sum(result.request.num_runs for result in results)),
        "rollout/num_tokens": float(num_tokens),
        "rollout/num_experiences": float(len(experiences)),
        "rollout/failed_runs": float(sum(result.request.num_runs for result in failed)),
        "rollout/retried_runs": float(sum(result.request.num_runs for result in again)),
        **_by_outcome(failed, "failed_runs"),
        **_by_outcome(again, "retried_runs"),
    }


def _by_outcome(results: Sequence[RolloutResult], name: str) -> Metrics:
    """Return how many runs met each outcome; of one that went well, the last before it."""
    counts: Metrics = {}
    for result in results:
        failure = result.failure or result.retried[-1]
        key = f"rollout/{name}/{failure.outcome.value}"
        counts[key] = counts.get(key, 0.0) + result.request.num_runs
    return counts


def run_metrics(result: RolloutResult) -> list[dict[str, float]]:
    """Return the metrics of each run of a result: of several steps, the last that names one.

    >>> from trinity.common.experience import Experience
    >>> exps = (Experience(tokens=[1, 2, 3], reward=1.0, metrics={"turns": 4}),)
    >>> from trinity.explorer.requests import RolloutResult
    >>> run_metrics(RolloutResult(request=None, experiences=exps))[0]["turns"]
    4.0
    """
    by_run: dict[int, dict[str, float]] = {}
    for experience in result.experiences:
        row = by_run.setdefault(experience.eid.run, {})
        row |= {name: float(value) for name, value in experience.metrics.items()}
        if experience.reward is not None:
            row["reward"] = float(experience.reward)
        row["response_length"] = float(experience.response_length)
        row["prompt_length"] = float(experience.prompt_length)
        is_cut = experience.truncate_status is not None
        row["truncated"] = max(row.get("truncated", 0.0), float(is_cut))
    for row in by_run.values():
        row["time/run_execution"] = result.duration_s
    return list(by_run.values())


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
        self._earlier: deque[tuple[int, int]] = deque(maxlen=num_tasks)

    def check(self, results: Sequence[RolloutResult]) -> None:
        """Take a look at what there is of a step.

        Raises:
            RunFailedError: too many of these runs failed, those of earlier tasks counted in.
        """
        num_missing = max(0, self._num_tasks - len(_counts_by_task(results)))
        first = max(0, len(self._earlier) - num_missing)
        check_failures(
            results, max_failed_ratio=self._max_failed_ratio, earlier=list(self._earlier)[first:]
        )

    def is_enough(self, results: Sequence[RolloutResult]) -> bool:
        """Return whether these and the earlier tasks are as many as are counted together."""
        return len(self._earlier) + len(_counts_by_task(results)) >= self._num_tasks

    def note(self, results: Sequence[RolloutResult]) -> None:
        """Take the tasks of a step that ended as the ones before the next step."""
        self._earlier.extend(_counts_by_task(results))

    def state_dict(self) -> list[list[int]]:
        """Return the number of runs and of failed runs for each of the last tasks."""
        return [list(counts) for counts in self._earlier]

    def load_state_dict(self, state: Iterable[Sequence[int]]) -> None:
        """Go on from there."""
        self._earlier.clear()
        self._earlier.extend((num_runs, num_failed) for num_runs, num_failed in state)


def _counts_by_task(results: Iterable[RolloutResult]) -> list[tuple[int, int]]:
    """Return the number of runs and of failed runs of each task, in the tasks' order."""
    counts: dict[int, tuple[int, int]] = {}
    for result in results:
        num_runs, num_failed = counts.get(result.request.key.task, (0, 0))
        num_runs += result.request.num_runs
        num_failed += result.request.num_runs if result.failure is not None else 0
        counts[result.request.key.task] = num_runs, num_failed
    return [counts[task] for task in sorted(counts)]
