"""``trinity sweep``: one configuration, many settings and seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config import Config

    from trinity_lab.side_by_side import SideBySide
    from trinity_lab.sweep_files import SweepFolder

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
    from trinity_lab.points import MAX_PARALLEL, axes_of, blaming, points_of
    from trinity_lab.slots import slots_for
    from trinity_lab.sweep_checks import check_combinations, read_all, writers_of
    from trinity_lab.sweep_files import SweepFolder

    config = _loaded(file, settings or [], plugin_dir or [])
    section = _section(config.sweep, over=over or [], seeds=seeds, draws=draws)
    writers = writers_of(config.source, over=over or [])
    axes = axes_of(section, seed=config.seed, writers=writers)
    folder = SweepFolder.of(config, points_of(axes, draw_seed=draw_seed))
    with blaming(MAX_PARALLEL, writers):
        limit = parallel or _limit(section.get(MAX_PARALLEL, 0))
    configs = read_all(file, settings or [], folder.runs, writers)
    if dry_run:
        for run in folder.runs:
            typer.echo(run.name)
        return
    check_combinations(configs, folder.runs, writers, local=local)
    slots = slots_for(config, is_local=local, num=limit)
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
        typer.echo(f"look at them: trinity view {folder.path}")


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
