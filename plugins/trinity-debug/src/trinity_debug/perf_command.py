"""``trinity perf``: where the time of a run's steps went."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from trinity_debug.step_times import StepTimes

_METRICS = ("monitor", "metrics.jsonl")


def perf(
    words: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN...", help="Run directories. Trinity-RFT's `view -r RUN` works too."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", "-r", help="The run directory of `perf view`.")
    ] = None,
    skip: Annotated[int, typer.Option(help="Ignore this many steps at the start.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Sample the processes of an active run; write flame graphs."
        ),
    ] = False,
    seconds: Annotated[int, typer.Option(min=1, help="Duration of --profile.")] = 30,
) -> None:
    """Show how a run spends the time of its steps, by side and component, from its metrics.

    Times are wall time. On a busy machine, compare shares, or measure without other load.
    """
    if profile:
        _profile(_named(words or [], report), seconds=seconds)
        return
    runs = [folder for named in _named(words or [], report) for folder in _runs(named)]
    found = {str(folder): _times(folder, skip=skip) for folder in runs}
    if as_json:
        runs_json = {name: asdict(times) if times else None for name, times in found.items()}
        typer.echo(json.dumps({"schema": 1, "runs": runs_json}, indent=2))
        return
    for name, times in found.items():
        typer.echo("\n".join(_table(name, times, skip=skip)))


def _profile(directories: list[Path], *, seconds: int) -> None:
    """Write a flame graph for each process of a run.

    Raises:
        typer.Exit: there is none of a process.
        BadParameter: several runs are named.
    """
    from trinity_debug.flame_graphs import flame_graphs

    if len(directories) > 1:
        raise typer.BadParameter("--profile samples one run: name one")
    graphs = flame_graphs(directories[0], seconds=seconds)
    for one in graphs:
        typer.echo(f"{one.name}: {one.problem or one.path}")
    if any(one.problem for one in graphs):
        raise typer.Exit(1)


def _named(words: list[Path], report: Path | None) -> list[Path]:
    """Return the runs that are meant, in our words or the published ones."""
    first = str(words[0]) if words and not words[0].exists() else ""
    if first == "run":
        raise ConfigError(
            "trinity perf run does not exist. Run the configuration with trinity run (mode explore "
            "for the explorer alone), then: trinity perf RUN_DIR"
        )
    runs = [*(words[1:] if first == "view" else words), *([report] if report else [])]
    if not runs:
        raise typer.BadParameter("name a run directory")
    return runs


def _runs(named: Path) -> list[Path]:
    """Return the run directories in a place: itself, or those of its stages.

    Raises:
        ConfigError: there are no metrics of a run.
    """
    if named.name == _METRICS[1] and named.is_file():
        return [named.parent.parent]
    folders = [named, *sorted(path.parents[1] for path in named.glob("*/monitor/metrics.jsonl"))]
    found = [folder for folder in folders if folder.joinpath(*_METRICS).is_file()]
    if not named.exists():
        raise ConfigError(f"there is no folder {named}. Name a run directory.")
    if not found:
        raise ConfigError(
            f"{named} has no monitor/metrics.jsonl. Name the run directory; the header of the run "
            f"prints it."
        )
    return found


def _times(folder: Path, *, skip: int) -> StepTimes | None:
    from trinity.monitor.jsonl import read_metrics

    from trinity_debug.step_times import step_times

    return step_times(read_metrics(folder / _METRICS[0]), skip=skip)


def _table(name: str, times: StepTimes | None, *, skip: int) -> list[str]:
    if times is None:
        others = f"after the first {skip}; --skip 0 counts those too" if skip else "yet"
        return [f"{name}: no steps {others}"]
    whole = times.step_s or 1.0
    lines = [f"{name}: {times.num_steps} steps, {times.step_s * 1000:.1f} ms each"]
    for side, seconds in times.sides.items():
        lines.append(_line(side, "", seconds, whole))
        lines += [
            _line(f"  {part.worker}", part.what, part.seconds, whole)
            for part in times.parts
            if part.side == side and len(times.parts) > 1
        ]
    if times.beside_s:
        lines.append(_line("overlap", "trained while exploring", -times.beside_s, whole))
    lines.append(_line("other", "checkpoints, hooks, waiting", times.other_s, whole))
    if times.evaluation_s:
        lines.append(f"beside the steps: {times.evaluation_s * 1000:.1f} ms an evaluation")
    return lines


def _line(worker: str, what: str, seconds: float, whole: float) -> str:
    return f"{worker:14} {what:46} {seconds * 1000:9.1f} ms {seconds / whole:7.1%}"
