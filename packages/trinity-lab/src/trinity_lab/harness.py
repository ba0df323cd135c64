"""Benchmarks of lm-eval, the Language Model Evaluation Harness, as scores of a table."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError

from trinity_lab.pass_at_k import Score
from trinity_lab.statistics import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_Z = 1.959964  # of a 95 % interval
RESULTS = "results.json"


@dataclass(frozen=True, kw_only=True)
class Benchmarks:
    """What lm-eval is asked for.

    Attributes:
        tasks: names of its tasks or groups; empty: nothing.
        include: a folder with further task files; None: there are none.
        limit: rows of each task; None: all.
        has_chat: whether prompts go through the model's chat template.
    """

    tasks: Sequence[str]
    include: Path | None
    limit: int | None
    has_chat: bool

    def check(self) -> None:
        """Refuse tasks that lm-eval does not know, before a model is loaded.

        Raises:
            ConfigError: lm-eval is not installed, or has no such task.
        """
        manager = _manager(self.include) if self.tasks else None
        unknown = [one for one in self.tasks if manager and not manager.match_tasks([one])]
        if unknown:
            raise ConfigError(
                f"lm-eval has no task {unknown[0]!r}. `lm-eval ls tasks` lists its own; "
                f"--task-files names a folder with task files of yours."
            )

    def scores(self, model: str, *, to: Path) -> list[Score]:
        """Return each metric of each task, with a 95 % interval from its standard error.

        Args:
            model: a folder that transformers loads, or a Hugging Face id.
            to: folder for ``results.json`` and the samples of each task, as ``keep_results``
                takes it.

        Raises:
            ConfigError: a task cannot be evaluated.
        """
        if not self.tasks:
            return []
        import torch
        from lm_eval import simple_evaluate

        try:
            found = simple_evaluate(
                model="hf",
                model_args={"pretrained": model, "dtype": "auto"},
                tasks=list(self.tasks),
                task_manager=_manager(self.include),
                limit=self.limit,
                device="cuda" if torch.cuda.is_available() else "cpu",
                apply_chat_template=self.has_chat,
                log_samples=True,
            )
        except Exception as error:  # the boundary to another program, and to files of tasks
            text = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"lm-eval could not evaluate {model} on {', '.join(self.tasks)}: "
                f"{type(error).__name__}: {text}. Without a network its data must be files, or in "
                f"the Hugging Face cache."
            ) from error
        keep_results(found, to)
        return scores_of_results(found["results"])


def scores_of_results(results: Mapping[str, Mapping[str, Any]]) -> list[Score]:
    """Return the scores of lm-eval's results (Any: numbers, and names of things).

    >>> results = {"sums": {"alias": "sums", "acc,none": 0.5, "acc_stderr,none": 0.1}}
    >>> [score] = scores_of_results(results)
    >>> score.name, score.value, round(score.interval.low, 3), round(score.interval.high, 3)
    ('sums acc', 0.5, 0.304, 0.696)
    """
    scores = []
    for task, numbers in results.items():
        for key, value in numbers.items():
            metric, comma, chosen = key.partition(",")
            if not comma or metric.endswith("_stderr") or not isinstance(value, (int, float)):
                continue
            error = numbers.get(f"{metric}_stderr,{chosen}")
            has_error = isinstance(error, (int, float))
            name = f"{task} {metric}" + ("" if chosen == "none" else f" ({chosen})")
            interval = _around(float(value), float(error)) if has_error else None
            scores.append(Score(name=name, value=float(value), interval=interval))
    return scores


def _around(value: float, error: float) -> Interval:
    return Interval(low=value - _Z * error, high=value + _Z * error)


def _manager(include: Path | None) -> Any:  # Any: of lm-eval, untyped
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ConfigError(
            f"--tasks needs the package lm-eval: {error}. Run: pip install 'trinity-lab[lm-eval]'"
        ) from error
    if include is not None and not include.is_dir():
        raise ConfigError(f"there is no folder {include} with task files.")
    return TaskManager(include_path=None if include is None else str(include))


def keep_results(found: dict[str, Any], to: Path) -> Path:
    """Write lm-eval's results, and the samples of each task a line each; return where.

    Args:
        found: as lm-eval gives them (Any: of its own types).
        to: the folder; the first of ``TO-2``, ``TO-3``, ... where it has results.
    """
    numbered = (to.with_name(f"{to.name}-{number}") for number in itertools.count(2))
    free = (one for one in itertools.chain([to], numbered) if not (one / RESULTS).exists())
    folder = next(free)
    folder.mkdir(parents=True, exist_ok=True)
    samples = found.pop("samples", {})
    text = json.dumps(found, indent=2, default=str)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    for task, rows in samples.items():
        lines = (json.dumps(row, default=str) + "\n" for row in rows)
        name = f"samples-{task.replace('/', '-')}.jsonl"
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return folder
