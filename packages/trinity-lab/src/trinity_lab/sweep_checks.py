"""Check all runs of a sweep before the first one starts, and say who wrote a wrong value."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.common.config.explanation import further_problems
from trinity.common.config.load import read_config
from trinity.common.config.overrides import parse_overrides
from trinity.common.config.problem import config_error

from trinity_lab.points import SEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.common.config.problem import Problem, Source

    from trinity_lab.sweep_files import SweepRun

_OVERRIDE = "command line"  # who writes the values of a run, as far as its configuration knows


def writers_of(source: Source, *, over: Sequence[str]) -> dict[str, str]:
    """Return who wrote the values of each key that a sweep varies: ``file:line``, or an option.

    Args:
        source: of the file.
        over: the options ``--over``, which win over the file.
    """
    section = "sweep."
    written = [one for one in (*source.lines, *source.overrides) if one.startswith(section)]
    found = {path.removeprefix(section): source.where(path) for path in written}
    return found | {one.path: "--over" for one in parse_overrides(over)[0]}


def read_all(
    file: Path, settings: Sequence[str], runs: Sequence[SweepRun], writers: Mapping[str, str]
) -> list[Config]:
    """Return the configuration of each run.

    Args:
        file: of the sweep.
        settings: of the command line, for all runs.
        runs: of the sweep.
        writers: of `writers_of`.

    Raises:
        ConfigError: the file with the settings of a run cannot be read.
    """
    configs = []
    for run in runs:
        reading = read_config(file, overrides=[*settings, *run.overrides])
        if reading.config is None or reading.problems:
            found = [*reading.problems, *further_problems(reading)]
            raise config_error(_blamed(found, run, writers), name=reading.file)
        configs.append(reading.config)
    return configs


def check_combinations(
    configs: Sequence[Config],
    runs: Sequence[SweepRun],
    writers: Mapping[str, str],
    *,
    local: bool = False,
) -> None:
    """Check each combination of values, before any run starts; its seeds share the check.

    Raises:
        ConfigError: some cannot be run; the message lists what ``trinity config check`` lists.
    """
    first: dict[str, tuple[SweepRun, Config]] = {}
    for run, config in zip(runs, configs, strict=True):
        values = {key: value for key, value in run.settings.items() if key != SEED}
        first.setdefault(json.dumps(values), (run, config))
    problems = [
        problem
        for run, config in first.values()
        for problem in _blamed(_problems_of(config, local=local), run, writers)
    ]
    if problems:
        raise config_error(problems, name=configs[0].source.file)


def _problems_of(config: Config, *, local: bool) -> list[Problem]:
    from trinity.common.config import check, probe
    from trinity.common.config.preparation import run_manager, stages_on

    machine, manager = probe(model_path=config.model.model_path), run_manager(config)
    stages = stages_on(config, machine, manager=manager, local=local)
    found = [one for stage, used in stages for one in check(stage, used, manager=manager)]
    return [problem for problem in found if problem.severity != "notice"]


def _blamed(
    problems: Iterable[Problem], run: SweepRun, writers: Mapping[str, str]
) -> list[Problem]:
    """Return the problems; those of a value that the sweep sets with the place of the sweep."""
    return [
        replace(one, where=_writer(one, run, writers)) if one.where == _OVERRIDE else one
        for one in problems
    ]


def _writer(problem: Problem, run: SweepRun, writers: Mapping[str, str]) -> str:
    about = [
        key
        for key in run.settings
        if f"{problem.path}.".startswith(f"{key}.") or f"{key}.".startswith(f"{problem.path}.")
    ]
    return next((writers[key] for key in about if key in writers), problem.where)
