"""Runs as arms of an experiment: what each reached, and whether two of them differ.

Outcome, Outcome, ... --same settings but the seed--> Arm --pairs--> Difference
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity_lab.outcomes import differing_settings
from trinity_lab.points import short_names
from trinity_lab.statistics import (
    ALPHA,
    Interval,
    SeedsNeeded,
    interval_of,
    p_of_labels,
    p_of_signs,
    resampled_means,
    seeds_needed,
    smallest_p,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trinity_lab.outcomes import Outcome, TaskKey
    from trinity_lab.statistics import Values


@dataclass(frozen=True, kw_only=True, eq=False)
class Arm:
    """Runs that differ in nothing but the seed.

    Attributes:
        label: the settings that set it apart.
        runs: in the order of their seeds.
        mean: over the runs.
        interval: of the mean; None: one run without values of tasks has none.
        settings: the value of each setting in which arms differ (Any: yaml).
        derived: paths of those that nobody wrote: they follow from others.
    """

    label: str
    runs: Sequence[Outcome]
    mean: float
    interval: Interval | None
    settings: dict[str, Any]
    derived: Sequence[str]

    @property
    def values(self) -> list[float]:
        """Return what each run reached."""
        return [run.value for run in self.runs]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two arms.

    Attributes:
        first: is taken from the other.
        second: the other.
        value: mean of the second less mean of the first.
        interval: of it, of seeds and tasks drawn again; None: there is one run an arm.
        p: of a permutation test over runs, corrected for the number of pairs (Holm).
        num_tasks: that all runs of both arms have, of the same file.
        p_tasks: of a paired test over these; None: there are none.
        needed: the seeds that such a difference needs; None: nobody knows.
        smallest_p: that so many seeds can give.
    """

    first: Arm
    second: Arm
    value: float
    interval: Interval | None
    p: float
    num_tasks: int
    p_tasks: float | None
    needed: SeedsNeeded | None
    smallest_p: float

    @property
    def is_distinguishable(self) -> bool:
        """Return whether the arms differ by more than their seeds do, at 5 %."""
        return self.p < ALPHA


def arms_of(outcomes: Sequence[Outcome]) -> list[Arm]:
    """Return the arms in the order of their first runs."""
    written, derived = differing_settings(outcomes)
    paths = written + derived
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        key = json.dumps([one.settings.get(path) for path in paths], default=str)
        groups.setdefault(key, []).append(one)
    firsts = [runs[0] for runs in groups.values()]
    shown = _telling(written, firsts) or _telling(paths, firsts) or paths
    names = short_names(shown)
    values = [short_values([one.settings.get(path) for one in firsts]) for path in shown]
    arms = []
    for place, runs in enumerate(groups.values()):
        settings = {path: runs[0].settings.get(path) for path in paths}
        pairs = zip(shown, values, strict=True)
        label = ", ".join(f"{names[path]}={of_path[place]}" for path, of_path in pairs)
        label = label or "all runs"
        arms.append(_arm(label, runs, settings, derived=derived))
    return arms


def short_values(values: Sequence[object]) -> list[str]:
    """Return texts of values; of files and folders, without the folders that they share.

    >>> short_values(["/data/a/model", "/data/b/model"])
    ['a', 'b']
    >>> short_values(["/data/model", "/data/model/new"])
    ['/data/model', '/data/model/new']
    >>> short_values([0.1, None])
    ['0.1', 'None']
    """
    texts = [str(one) for one in values]
    if not all(isinstance(one, str) and "/" in one for one in values):
        return texts
    parts = [one.split("/") for one in texts]
    start = _num_shared(parts)
    end = _num_shared([one[start:][::-1] for one in parts])
    short = ["/".join(one[start : len(one) - end]) for one in parts]
    return short if all(short) else texts


def _num_shared(rows: Sequence[Sequence[str]]) -> int:
    """Return with how many equal parts all rows begin."""
    columns = enumerate(zip(*rows, strict=False))
    return next((n for n, one in columns if len(set(one)) > 1), min(map(len, rows)))


def differences_of(arms: Sequence[Arm]) -> list[Difference]:
    """Return each pair of arms, the later less the earlier."""
    pairs = list(itertools.combinations(arms, 2))
    values = _holm([p_of_labels(a.values, b.values) for a, b in pairs])
    means_of = lru_cache(maxsize=2 * len(arms))(_resampled_means)  # an arm is in many pairs
    return [
        _difference(a, b, p=p, means_of=means_of) for (a, b), p in zip(pairs, values, strict=True)
    ]


def with_comparable_tasks(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[str]]:
    """Return the runs with tasks that can be paired, and notes of those that cannot."""
    unknown = [str(run.directory) for run in outcomes if any(not file for _, file in run.tasks)]
    notes = []
    if unknown:
        notes.append(
            f"note: config.yaml does not say which file the tasks are of in {', '.join(unknown)}; "
            f"tasks are paired by their numbers alone"
        )
        outcomes = [
            replace(one, tasks={(number, ""): value for (number, _), value in one.tasks.items()})
            for one in outcomes
        ]
    num_left_out, num_tasks = _tasks_left_out(outcomes)
    if num_left_out:
        notes.append(
            f"note: {num_left_out} of {num_tasks} tasks are not the same in all runs (another "
            f"path, split or subset_name of the evaluation set, or no rollout); two arms are "
            f"paired over those that are"
        )
    return list(outcomes), notes


def _tasks_left_out(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Return how many tasks are not the same in all runs that kept theirs, and of how many."""
    kept = [set(run.tasks) for run in outcomes if run.tasks]
    if not kept:
        return 0, 0
    numbers = {number for number, _ in set.union(*kept)}
    return len(numbers) - len(set.intersection(*kept)), len(numbers)


def _telling(paths: Sequence[str], arms: Sequence[Outcome]) -> list[str]:
    """Return the fewest settings, taken in their order, that tell the arms apart; [] if none do."""
    for count in range(1, min(3, len(paths)) + 1):
        for chosen in itertools.combinations(paths[:60], count):
            seen = {json.dumps([one.settings.get(p) for p in chosen], default=str) for one in arms}
            if len(seen) == len(arms):
                return list(chosen)
    return []


def _arm(
    label: str, runs: Sequence[Outcome], settings: dict[str, Any], *, derived: Sequence[str]
) -> Arm:
    runs = sorted(runs, key=lambda run: (run.seed is None, run.seed or 0, run.name))
    tasks = _all_tasks(runs)
    has_spread = len(runs) > 1 or len(tasks) > 1
    return Arm(
        label=label,
        runs=runs,
        mean=fmean(run.value for run in runs),
        interval=interval_of(resampled_means(_table(runs, tasks))) if has_spread else None,
        settings=settings,
        derived=derived,
    )


def _difference(
    first: Arm, second: Arm, *, p: float, means_of: Callable[..., Values]
) -> Difference:
    runs = [*first.runs, *second.runs]
    every, common = _all_tasks(runs), _common_tasks(runs)
    interval, p_tasks = None, None
    if len(runs) > 2:
        a, b = (means_of(arm, every, stream) for stream, arm in enumerate((first, second)))
        interval = interval_of(b - a)
    if len(common) > 1:
        p_tasks = p_of_signs(_table(first.runs, common), _table(second.runs, common))
    return Difference(
        first=first,
        second=second,
        value=second.mean - first.mean,
        interval=interval,
        p=p,
        num_tasks=len(common),
        p_tasks=p_tasks,
        needed=seeds_needed(first.values, second.values),
        smallest_p=smallest_p(len(first.runs), len(second.runs)),
    )


def _resampled_means(arm: Arm, tasks: Sequence[TaskKey], stream: int) -> Values:
    return resampled_means(_table(arm.runs, tasks), stream=stream)


def _all_tasks(runs: Sequence[Outcome]) -> tuple[TaskKey, ...]:
    """Return the tasks that any of the runs has; none where one of them kept none."""
    kept = [set(run.tasks) for run in runs]
    return _in_order(set.union(*kept)) if all(kept) else ()


def _common_tasks(runs: Sequence[Outcome]) -> tuple[TaskKey, ...]:
    """Return the tasks that each run has: the same number of the same file."""
    return _in_order(set.intersection(*(set(run.tasks) for run in runs)))


def _in_order(tasks: Iterable[TaskKey]) -> tuple[TaskKey, ...]:
    return tuple(sorted(tasks, key=lambda task: (len(task[0]), task)))


def _table(runs: Sequence[Outcome], tasks: Sequence[TaskKey]) -> list[Values]:
    """Return the values of each run's tasks, NaN where it has none; without tasks, the run's."""
    if not tasks:
        return [np.array([run.value]) for run in runs]
    return [np.array([run.tasks.get(task, math.nan) for task in tasks]) for run in runs]


def _holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number.

    >>> _holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = least
    return corrected
