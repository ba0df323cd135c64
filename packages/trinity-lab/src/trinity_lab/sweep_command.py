"""``trinity sweep``: one configuration, many settings and seeds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.config.problem import Problem

    from trinity_lab.side_by_side import SideBySide
    from trinity_lab.sweep_files import SweepFolder, SweepRun

INTERRUPTED = 130


def sweep(  # noqa: PLR0913, PLR0917 -- the options of a command
    file: Annotated[Path, typer.Argument(help="The YAML file, with or without a section sweep.")],
    over: Annotated[
        list[str] | None,
        typer.Option("--over", help="Values of a key: KEY=[A,B,...]. Repeatable."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=0, help="Number of seeds, from the file's up.")] = 0,
    draws: Annotated[
        int, typer.Option(min=0, help="Random draws instead of a grid: how many.")
    ] = 0,
    draw_seed: Annotated[int, typer.Option(help="Seed of the random draws.")] = 0,
    parallel: Annotated[
        int, typer.Option(min=0, help="Runs at a time; 0: as many as GPUs or cores allow.")
    ] = 0,
    local: Annotated[bool, typer.Option("--local", help="Run each without Ray.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Set a value for all runs. Repeatable.")
    ] = None,
    plugin_dir: Annotated[
        list[Path] | None, typer.Option("--plugin-dir", help="Load a folder's plugins. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
) -> None:
    """Run a configuration for a grid or random draws of settings, and for several seeds.

    Each run has an ordinary run directory, NAME-KEY=VALUE-seed=N. Runs that are finished are not
    started again, so the same command goes on after a kill, and more seeds can be added later.
    """
    from trinity_lab.points import MAX_PARALLEL, axes_of, points_of
    from trinity_lab.slots import slots_for
    from trinity_lab.sweep_files import SweepFolder

    config = _loaded(file, settings or [], plugin_dir or [])
    section = _section(config.sweep, over=over or [], seeds=seeds, draws=draws)
    points = points_of(axes_of(section, seed=config.seed), draw_seed=draw_seed)
    folder = SweepFolder.of(config, points)
    configs = _read_all(file, settings or [], folder.runs)
    if dry_run:
        for run in folder.runs:
            typer.echo(run.name)
        return
    _check_combinations(configs, folder.runs)
    slots = slots_for(config, is_local=local, num=parallel or _limit(section.get(MAX_PARALLEL, 0)))
    program = [sys.executable, "-m", "trinity", "run", "--config", str(file)]
    program += ["--local"] if local else []
    program += [word for text in settings or [] for word in ("--set", text)]
    program += [word for one in plugin_dir or [] for word in ("--plugin-dir", str(one))]
    with folder.held():
        code = run_all(folder, program=program, slots=slots)
    raise typer.Exit(code)


def run_all(
    folder: SweepFolder, *, program: Sequence[str], slots: Sequence[Mapping[str, str]]
) -> int:
    """Run what of a sweep is not finished.

    Args:
        folder: of the sweep, held.
        program: ``trinity run`` with the arguments that all runs share.
        slots: the environment of each run that may go on at a time.

    Returns:
        The exit code: 0 all are finished, 1 some failed, 130 it was interrupted.
    """
    from trinity_lab.side_by_side import SideBySide

    before = folder.finished()
    waiting = [run for run in folder.runs if run.name not in before]
    done = len(folder.runs) - len(waiting)
    typer.echo(f"sweep {folder.path}: {len(folder.runs)} runs, {len(slots)} at a time")
    if done:
        typer.echo(f"{done} of them were finished before")
    work = SideBySide(folder=folder, program=program, slots=slots, say=typer.echo)
    work.run(waiting)
    _close(folder, work)
    if work.was_interrupted:
        return INTERRUPTED
    return 1 if work.failed else 0


def _close(folder: SweepFolder, work: SideBySide) -> None:
    finished = folder.finished()
    num_done = sum(run.name in finished for run in folder.runs)
    typer.echo(f"{num_done} of {len(folder.runs)} runs are finished")
    if work.failed:
        names = ", ".join(run.name for run in work.failed)
        typer.echo(f"{len(work.failed)} failed: {names}. The same command tries them again.")
    if work.was_interrupted:
        typer.echo("the same command goes on from there")
    elif num_done:
        typer.echo(f"compare them: trinity compare {folder.path}")


def _loaded(file: Path, settings: Sequence[str], plugin_dirs: Sequence[Path]) -> Config:
    from trinity.common.config.explanation import load_or_explain
    from trinity.extend import get_manager, set_manager

    set_manager(get_manager().narrowed(plugin_dirs=plugin_dirs))
    return load_or_explain(file, overrides=settings)


def _section(
    given: Mapping[str, Any], *, over: Sequence[str], seeds: int, draws: int
) -> dict[str, Any]:  # Any: yaml
    """Return the file's section with the options, which win.

    Raises:
        ConfigError: an option is no setting.
    """
    from trinity.common.config.overrides import parse_overrides
    from trinity.common.config.problem import config_error

    from trinity_lab.points import NUM_DRAWS, SEED

    found, problems = parse_overrides(over)
    if problems:
        raise config_error(problems, name="--over")
    section = dict(given) | {one.path: one.value for one in found}
    section |= {SEED: seeds} if seeds else {}
    return section | ({NUM_DRAWS: draws} if draws else {})


def _limit(value: Any) -> int:  # Any: yaml
    if type(value) is not int or value < 0:
        raise ConfigError(f"sweep.max_parallel is {value!r}. Write a number of runs; 0: no limit.")
    return value


def _read_all(file: Path, settings: Sequence[str], runs: Sequence[SweepRun]) -> list[Config]:
    """Return the configuration of each run.

    Raises:
        ConfigError: the file with the settings of a run cannot be read.
    """
    from trinity.common.config.explanation import load_or_explain

    return [load_or_explain(file, overrides=[*settings, *run.overrides]) for run in runs]


def _check_combinations(configs: Sequence[Config], runs: Sequence[SweepRun]) -> None:
    """Check each combination of values, before any run starts; its seeds share the check.

    Raises:
        ConfigError: some cannot be run; the message lists what ``trinity config check`` lists.
    """
    from trinity.common.config.problem import config_error

    from trinity_lab.points import SEED

    first: dict[str, Config] = {}
    for run, config in zip(runs, configs, strict=True):
        values = {key: value for key, value in run.settings.items() if key != SEED}
        first.setdefault(json.dumps(values), config)
    problems = [problem for config in first.values() for problem in _problems_of(config)]
    if problems:
        raise config_error(problems, name=configs[0].source.file)


def _problems_of(config: Config) -> list[Problem]:
    from trinity.common.config import check, probe, resolve_stages
    from trinity.common.config.preparation import run_manager

    machine, manager = probe(model_path=config.model.model_path), run_manager(config)
    stages = resolve_stages(config, machine, manager=manager)
    found = [problem for stage in stages for problem in check(stage, machine, manager=manager)]
    return [problem for problem in found if problem.severity != "notice"]
