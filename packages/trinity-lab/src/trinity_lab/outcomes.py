"""What a run reached: its value of a metric, and the value of each task of its last evaluation."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import yaml
from trinity.common.config.load import ORIGINS
from trinity.common.config.model import is_hub_id
from trinity.common.config.paths import leaves
from trinity.errors import ConfigError, DataError, unknown_name
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.evaluation_samples import evaluation_files
from trinity.runtime.record.rundir import with_stages
from trinity.runtime.record.sample_files import find_blocks, read_rows

from trinity_lab.run_folders import holds_run, runs_inside
from trinity_lab.sweep_files import read_sweep

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from trinity.runtime.record.evaluation_samples import EvaluationFile

TaskKey = tuple[str, str]  # its number in the evaluation, and what names its file; "": not known
_OF_A_SET = re.compile(r"(?:eval|bench)/(?P<set>.+)/(?P<name>[^@]+)/mean@\d+$")
_SET_NAME = re.compile(r"buffer\.explorer_input\.eval_tasksets\.\d+\.name")
_DATA_FILES = {".jsonl", ".json", ".parquet", ".csv"}
# Origins of settings that somebody wrote: in a file, with --set, in a program.
_WRITTEN = re.compile(r".+:\d+|command line|Python")
NUM_LAST = 10  # lines of metrics.jsonl that stand for a training metric
# What says which run it is, and not what it does.
_NAMES = {"name", "group", "project", "checkpoint_root_dir", "ray_namespace", "sweep"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run as `trinity compare` sees it."""

    directory: Path
    name: str
    seed: int | None
    status: str  # of run.json
    last_step: str  # "train step 12"; of a run that only explores, "explore step 12"
    metric: str
    value: float
    is_of_evaluation: bool = True  # else of the last steps
    tasks: Mapping[TaskKey, float] = field(default_factory=dict)  # mean of each; {}: not kept
    settings: Mapping[str, Any] = field(default_factory=dict)  # by dotted path (Any: yaml)
    derived: Collection[str] = ()  # paths of those that are defaults, or follow from others


def run_directories(given: Iterable[Path]) -> list[Path]:
    """Return the run directories: those given, and those of sweeps; of stages the last.

    A run counts once, however often and by whichever path it is given.

    Raises:
        ConfigError: a folder holds no run.
    """
    found: list[Path] = []
    for path in given:
        sweep = read_sweep(path)
        if sweep is None:
            found.append(_of_stage(path))
        else:  # those that have not begun are told as not finished
            found += [_of_stage(one) if holds_run(one) else one for one in sweep.directories]
    places: dict[Path, Path] = {}
    for one in found:
        places.setdefault(one.resolve(), one)
    return list(places.values())


def read_outcome(directory: Path, *, metric: str = "") -> Outcome:
    """Return what a run reached.

    Args:
        directory: of the run.
        metric: of its last evaluation, or of ``metrics.jsonl``, where the last ten steps stand for
            the run; "": the reward of its first evaluation set.

    Raises:
        ConfigError: the run has no such metric.
    """
    status = _status(directory)
    settings = _settings(directory)
    evaluation = status["evaluation"]
    metric = metric or _reward_of(evaluation, directory)
    if metric in evaluation:
        value, tasks = float(evaluation[metric]), _tasks(directory, metric, settings)
    else:
        value, tasks = _last_steps(directory, metric, evaluation), {}
    seed = settings.get("seed")
    return Outcome(
        directory=directory,
        name=str(settings.get("name", directory.name)),
        seed=seed if isinstance(seed, int) else None,
        status=str(status["status"]),
        last_step=status["last_step"],
        metric=metric,
        value=value,
        is_of_evaluation=metric in evaluation,
        tasks=tasks,
        settings=_of_what_it_does(settings),
        derived=_derived(directory),
    )


def is_finished(directory: Path) -> bool:
    """Return whether a run is at its end; False too where it has not begun."""
    return holds_run(directory) and _status(directory)["status"] == "finished"


def differing_settings(outcomes: Sequence[Outcome]) -> tuple[list[str], list[str]]:
    """Return the paths of settings that are not the same in all runs.

    Returns:
        Those that were written for at least one run, and those that are derived in all: defaults of
        the written ones, and what follows from them.
    """
    paths = dict.fromkeys(path for one in outcomes for path in one.settings)
    written: list[str] = []
    derived: list[str] = []
    for path in paths:
        if len({json.dumps(one.settings.get(path), default=str) for one in outcomes}) > 1:
            having = [one for one in outcomes if path in one.settings]
            (derived if all(path in one.derived for one in having) else written).append(path)
    return written, derived


def rewards_of_tasks(file: EvaluationFile, *, name: str = "reward") -> dict[str, list[float]]:
    """Return the values of a metric of each task's rollouts in an evaluation, by the task's number.

    Args:
        file: of the evaluation.
        name: "reward", or a metric of the workflow. Of a rollout of several steps the last counts.

    Raises:
        DataError: the file is damaged.
    """
    runs: dict[tuple[str, str], float] = {}
    for place in find_blocks(file.path)[0]:
        for row in read_rows(place):
            _, group, run, *_ = row["eid"].split("/")
            task = group.partition("-")[0]  # a task may have several groups, as of two agents
            value = row["reward"] if name == "reward" else row["metrics"].get(name)
            if value is not None:
                runs[task, run] = float(value)
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for (task, _), value in runs.items():
        by_task[task].append(value)
    return dict(by_task)


def _of_stage(path: Path) -> Path:
    if not path.exists():
        raise ConfigError(f"there is no run directory {path}. Name those that exist, or a sweep.")
    if not holds_run(path):
        inside = runs_inside(path)
        raise ConfigError(f"{path} holds no run: it has neither run.json nor bench.json.{inside}")
    return with_stages(path)[-1]


def _status(directory: Path) -> dict[str, Any]:  # Any: json
    name = "run.json" if (directory / "run.json").exists() else "bench.json"
    try:
        read: dict[str, Any] = json.loads((directory / name).read_text(encoding="utf-8"))
        side = "explore" if read.get("mode") == "explore" else "train"
        step = f"{side} step {int(read.get(f'{side}_steps', 0))}"
        evaluation = dict(read["evaluation"])
        return {"evaluation": evaluation, "status": read["status"], "last_step": step}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{directory / name} cannot be read: {error}.") from error


def _settings(directory: Path) -> dict[str, Any]:  # Any: yaml
    try:
        read = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}  # only the differences of settings are missing then
    found = dict(leaves(read)) if isinstance(read, dict) else {}
    if found.get("model.external_model.enable"):  # the tokenizer's folder stands there
        found["model.model_path"] = f"api:{found.get('model.external_model.model_name')}"
    return found


def _derived(directory: Path) -> set[str]:
    """Return the paths of settings that nobody wrote; none where the run does not say."""
    try:
        origins = json.loads((directory / ORIGINS).read_text(encoding="utf-8"))
        return {path for path, origin in origins.items() if not _WRITTEN.fullmatch(origin)}
    except (OSError, ValueError, TypeError, AttributeError):
        return set()


def _of_what_it_does(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the seed, names, and paths into the run's own directory."""
    name, seed = str(settings.get("name", "")), settings.get("seed")
    run = name.partition("/")[0]  # a stage is named RUN/STAGE, and reads what the others wrote
    # Not within a word: a run named "a" would differ from others in "float32".
    named = re.compile(rf"(?<![a-zA-Z0-9]){re.escape(run)}(?![a-zA-Z0-9])")
    kept = {}
    for path, value in settings.items():
        key = path.rpartition(".")[2]
        is_seed = key == "seed" and value == seed
        if path.partition(".")[0] in _NAMES or path == "seed" or is_seed:
            continue
        kept[path] = named.sub("{name}", value) if run and isinstance(value, str) else value
    return kept


def _reward_of(evaluation: Mapping[str, float], directory: Path) -> str:
    rewards = [name for name in evaluation if "/reward/mean@" in name]
    if rewards:
        return rewards[0]
    raise ConfigError(
        f"{directory} has no evaluation. Name a training metric, as --metric rollout/reward/mean, "
        f"or add buffer.explorer_input.eval_tasksets to the next runs."
    )


def _last_steps(directory: Path, metric: str, evaluation: Mapping[str, float]) -> float:
    rows = read_metrics(directory / "monitor")
    values = [row[metric] for row in rows if row.get(metric) is not None]
    if values:
        return fmean(values[-NUM_LAST:])
    known = {*evaluation, *(name for row in rows for name in row)} - {"role", "step"}
    longer = re.compile(rf"(.*/)?{re.escape(metric)}/mean(@\d+)?")
    if named := ", ".join(sorted(filter(longer.fullmatch, known))):
        raise ConfigError(
            f"{directory}: no metric is named {metric!r} alone. Name one of: {named}."
        )
    raise ConfigError(f"{directory}: {unknown_name('metric', metric, known)}")


def _tasks(directory: Path, metric: str, settings: Mapping[str, Any]) -> dict[TaskKey, float]:
    """Return the mean of each task in the last evaluation; {}: its rollouts were not kept."""
    found = _OF_A_SET.match(metric)
    if found is None:
        return {}
    files = [one for one in evaluation_files(directory) if one.taskset == found["set"]]
    if not files:
        return {}
    try:
        by_task = rewards_of_tasks(files[-1], name=found["name"])
    except (DataError, OSError):
        return {}
    file = _file_of(found["set"], settings, directory)
    return {(task, file): fmean(values) for task, values in by_task.items()}


def _file_of(name: str, settings: Mapping[str, Any], directory: Path) -> str:
    """Return what names the rows of an evaluation set; "": the settings do not say."""
    named = [key for key, value in settings.items() if value == name and _SET_NAME.fullmatch(key)]
    if not named:
        return ""
    taskset = named[0].removesuffix(".name")
    path, *part = (settings.get(f"{taskset}.{key}") for key in ("path", "split", "subset_name"))
    if not isinstance(path, str):
        return ""
    return json.dumps([_whole(path, _working_directory(directory, settings)), *part])


def _whole(path: str, folder: Path) -> str:
    """Return a path as the run took it: an id of the hub and an address stay as they are."""
    full = os.path.abspath(folder / path)
    is_id = is_hub_id(path) and Path(path).suffix not in _DATA_FILES and not os.path.exists(full)
    return path if is_id or "://" in path or "${" in path else full


def _working_directory(directory: Path, settings: Mapping[str, Any]) -> Path:
    """Return where a run was started, by its place below it; here, if that does not say."""
    names = (str(settings.get(key) or "") for key in ("project", "group", "name"))
    own = Path(str(settings.get("checkpoint_root_dir") or "checkpoints"), *names).parts
    whole = Path(os.path.abspath(directory)).parts
    return Path(*whole[: -len(own)]) if whole[-len(own) :] == own else Path()
