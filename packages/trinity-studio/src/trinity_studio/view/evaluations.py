"""The samples of evaluations: tasks with their rollouts, and the same tasks in several runs."""

from __future__ import annotations

import time
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError
from trinity.runtime.record.evaluation_samples import BENCH, evaluation_files
from trinity.runtime.record.sample_files import find_blocks, read_step

from trinity_studio.view.shown import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trinity.runtime.record.evaluation_samples import EvaluationFile
    from trinity.runtime.record.sample_files import Sample

    from trinity_studio.view.run import Run

    Values = dict[str, Any]  # Any: what a template draws

__all__ = ["evaluation_of", "evaluations_of", "same_tasks"]

TASKS_PER_PAGE = 12
_MOST_ROLLOUTS = 8  # of a task, drawn
_MOST_RUNS = 6  # beside each other
_PATIENCE_S = 0.05  # of a search


def evaluations_of(run: Run) -> list[Values]:
    """Return the evaluations whose samples are kept, the newest first, with their mean rewards."""
    files = evaluation_files(run.directory)
    return [
        {"number": place, "file": one, "reward": _recorded(run, one)}
        for place, one in enumerate(files)
    ][::-1]


def _recorded(run: Run, file: EvaluationFile) -> float | None:
    """Return the mean reward of an evaluation as the run recorded it; None: it did not."""
    start = f"{BENCH if file.is_bench else 'eval'}/{file.taskset}/reward/mean@"
    points = run.metrics.series(*run.metrics.names(start))
    return next((value for step, value in reversed(points) if step == file.step), None)


def evaluation_of(run: Run, number: int, *, query: Mapping[str, str]) -> Values:
    """Return the tasks of an evaluation, a page of them.

    Args:
        run: whose it is.
        number: of the evaluation, among those that are kept.
        query: ``page``; ``only``, ``wrong`` or ``right`` or ``mixed``; ``q``, a text to look for.
    """
    files = evaluation_files(run.directory)
    if number >= len(files):
        return {"evaluation": None, "problem": "These samples are no longer kept.", "tasks": []}
    tasks, problem = _tasks(files[number])
    wanted = [own for own in tasks if _is_wanted(own, query.get("only", ""))]
    text = query.get("q", "")
    is_whole = True
    if text:
        wanted, is_whole = _that_say(run, wanted, text)
    page = _whole(query.get("page"))
    drawn = wanted[page * TASKS_PER_PAGE : (page + 1) * TASKS_PER_PAGE]
    rewards = [one.reward for own in tasks for one in own if one.reward is not None]
    return {
        "evaluation": files[number],
        "number": number,
        "problem": problem,
        "tasks": [_drawn(run, own) for own in drawn],
        "num_tasks": len(tasks),
        "num_wanted": len(wanted),
        "mean": fmean(rewards) if rewards else None,
        "is_whole": is_whole,
        "page": page,
        "num_pages": -(-len(wanted) // TASKS_PER_PAGE),
        "query": {name: query.get(name, "") for name in ("only", "q")},
    }


def same_tasks(runs: Mapping[int, Run], *, query: Mapping[str, str]) -> Values:
    """Return the same tasks as several runs answered them in their last evaluations.

    Rows of an evaluation set have the same place in all runs of one file; where the prompt at a
    place differs, the runs had different files, and the place is left out.
    """
    chosen = dict(list(runs.items())[:_MOST_RUNS])
    sets = dict.fromkeys(
        one.taskset for run in chosen.values() for one in evaluation_files(run.directory)
    )
    taskset = query.get("set") or next(iter(sets), "")
    columns: dict[int, dict[str, list[Sample]]] = {}
    steps: dict[int, int] = {}
    for place, run in chosen.items():
        files = [one for one in evaluation_files(run.directory) if one.taskset == taskset]
        if files:
            steps[place] = files[-1].step
            columns[place] = {own[0].eid.split("/")[1]: own for own in _tasks(files[-1])[0]}
    shared = _shared(columns)
    if query.get("only") == "differ":
        shared = [one for one in shared if _differs([own[one] for own in columns.values()])]
    page = _whole(query.get("page"))
    drawn = shared[page * TASKS_PER_PAGE : (page + 1) * TASKS_PER_PAGE]
    return {
        "sets": list(sets),
        "taskset": taskset,
        "evaluated": {place: chosen[place] for place in columns},
        "steps": steps,
        "tasks": [
            {place: _drawn(chosen[place], own[task]) for place, own in columns.items()}
            for task in drawn
        ],
        "num_tasks": len(shared),
        "only": query.get("only", ""),
        "page": page,
        "num_pages": -(-len(shared) // TASKS_PER_PAGE),
    }


def _shared(columns: Mapping[int, Mapping[str, list[Sample]]]) -> list[str]:
    """Return the tasks that all runs have with the same prompt."""
    if not columns:
        return []
    first, *others = columns.values()
    return [
        task
        for task, own in first.items()
        if all(task in other and _prompt(other[task]) == _prompt(own) for other in others)
    ]


def _prompt(own: list[Sample]) -> bytes:
    return own[0].tokens[: own[0].prompt_length].tobytes()


def _differs(columns: list[list[Sample]]) -> bool:
    means = [_mean(own) for own in columns]
    return max(means) - min(means) > 1e-9


def _mean(own: list[Sample]) -> float:
    rewards = [one.reward for one in own if one.reward is not None]
    return fmean(rewards) if rewards else 0.0


def _is_wanted(own: list[Sample], only: str) -> bool:
    rewards = {one.reward for one in own}
    if only == "mixed":
        return len(rewards) > 1
    if only in {"right", "wrong"}:
        return any(reward is not None and reward > 0 for reward in rewards) is (only == "right")
    return True


def _that_say(run: Run, tasks: list[list[Sample]], text: str) -> tuple[list[list[Sample]], bool]:
    """Return the tasks in which a text stands, and whether there was time for all of them."""
    until = time.perf_counter() + _PATIENCE_S
    found = []
    for own in tasks:
        if any(text in said for said in [_said(run, own[0], prompt=True), *_replies(run, own)]):
            found.append(own)
        if time.perf_counter() > until:
            return found, own is tasks[-1]
    return found, True


def _replies(run: Run, own: list[Sample]) -> list[str]:
    return [_said(run, one) for one in own]


def _said(run: Run, one: Sample, *, prompt: bool = False) -> str:
    start = one.prompt_length
    ids = (one.tokens[:start] if prompt else one.tokens[start:]).tolist()
    return run.text.decode(ids) if run.text else " ".join(map(str, ids))


def _drawn(run: Run, own: list[Sample]) -> Values:
    return {
        "task": own[0].eid.split("/")[1],
        "prompt": shown(_said(run, own[0], prompt=True), limit=2000),
        "mean": _mean(own),
        "rollouts": [
            {"run": one.run, "reward": one.reward, "reply": shown(_said(run, one), limit=2000)}
            for one in own[:_MOST_ROLLOUTS]
        ],
        "count": len(own),
    }


def _tasks(file: EvaluationFile) -> tuple[list[list[Sample]], str]:
    """Return the samples of an evaluation by task, and what is wrong with it."""
    try:
        stamp = file.path.stat()
        return _read(file.path, stamp.st_mtime_ns, stamp.st_size), ""
    except (DataError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return [], f"{file.path.name} cannot be read: {error}"


@lru_cache(maxsize=12)
def _read(path: Path, changed: int, size: int) -> list[list[Sample]]:
    """Return the samples by task; a file that was written again is read again."""
    tasks: dict[str, list[Sample]] = {}
    for place in find_blocks(path)[0]:
        for one in read_step(place):
            tasks.setdefault(one.task, []).append(one)
    return list(tasks.values())


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 9 else 0
