"""``trinity status``: how a run stands, living or dead."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.cli.output import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trinity_debug.disk import DiskReport
    from trinity_debug.run_report import RunReport, WorkerReport


def status(
    run_dir: Annotated[
        Path, typer.Argument(help="The run directory; the header of a run prints it.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    databases: Annotated[
        bool,
        typer.Option(
            "--databases",
            help="Query the database server of the run as you (PGPASSWORD, ~/.pgpass).",
        ),
    ] = False,
) -> None:
    """Show the processes of a run, their progress, what they wait for, and the staleness.

    Reads only the files of the run and its ledger, so it works for a dead run too. A ledger on a
    database server is read only with --databases.
    """
    from trinity.runtime.record.rundir import with_stages

    from trinity_debug.run_report import read_standing
    from trinity_debug.sweep_runs import runs_of_sweep

    sweep = runs_of_sweep(run_dir)
    if sweep and not as_json:
        _print(line for run in sweep for line in _of_sweep_run(run, sweep=run_dir))
        return
    folders = [stage for one in sweep for stage in with_stages(one) if _is_run(stage)]
    folders = folders if sweep else _folders(run_dir)
    found = [read_standing(one, may_ask_servers=databases) for one in folders]
    if as_json:
        told = [_as_json(standing) for standing in found]
        what = "stages" if folders == with_stages(run_dir) else "runs"
        one = told[0] if len(told) == 1 and not sweep else {"schema": 1, what: told}
        typer.echo(json.dumps(one, indent=2))
        return
    for standing in found:
        _show(standing)


def _folders(run_dir: Path) -> list[Path]:
    """Return the folder of the run, those of its stages, or those of all runs that lie in it."""
    from trinity.runtime.record.rundir import with_stages

    stages = with_stages(run_dir)
    if stages != [run_dir] or (run_dir / "config.yaml").exists():
        return stages
    inside = sorted(one for one in run_dir.glob("*") if one.is_dir())
    runs = [stage for one in inside for stage in with_stages(one) if _is_run(stage)]
    return runs or stages


def _of_sweep_run(run: Path, *, sweep: Path) -> Iterator[str]:
    """Yield a line for each part of a run of a sweep, of a run with stages for each of theirs."""
    from trinity.runtime.record.rundir import with_stages

    from trinity_debug.run_report import read_standing

    stages = [stage for stage in with_stages(run) if _is_run(stage)]
    for stage in stages:
        place = stage.relative_to(run.parent)
        for part in read_standing(stage).parts:
            yield f"{place} {next(_of_part(part))}"
    if not stages:
        log = sweep / "logs" / f"{run.name}.log"
        yield f"{run.name} has not begun" + (f": see {log}" if log.exists() else "")


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("run.json", "bench.json", "explorers"))


def _as_json(standing: RunReport) -> dict[str, Any]:
    told = asdict(standing)
    if standing.ledger is not None:
        told["ledger"] = standing.ledger.facts
    return {"schema": 1, **told}


def _show(standing: RunReport) -> None:
    from trinity.cli.output import duration

    _print([f"run directory {standing.directory}"])
    for part in standing.parts:
        _print(_of_part(part))
    if standing.ledger is not None:
        _print(standing.ledger.lines)
    problem = [standing.ledger_problem] if standing.ledger_problem else []
    _print(f"note: {line}" for line in [*standing.notes, *problem])
    _print(_of_disk(standing.disk))
    _print(standing.selection)
    is_bench = bool(standing.parts) and all(part.mode == "bench" for part in standing.parts)
    if is_bench and not standing.checkpoint:
        return  # it trains nothing
    age = f", written {duration(standing.checkpoint_s)} ago" if standing.checkpoint_s else ""
    typer.echo(f"last checkpoint: {standing.checkpoint or 'none'}{age}")


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(plain(line))


def _of_part(part: WorkerReport) -> Iterator[str]:
    from trinity.cli.output import duration

    steps = {"train": f"train step {part.train_steps}", "explore": f"step {part.explore_steps}"}
    both = f"explore step {part.explore_steps}, train step {part.train_steps}"
    facts = [f"process {part.pid}"] if part.pid is not None else []
    facts += ["no living process here"] if part.status == "lost" else []
    facts += [f"last metrics {duration(part.last_s)} ago"] if part.last_s is not None else []
    facts += [f"restarted {part.restarts} times"] if part.restarts else []
    told = f" ({', '.join(facts)})" if facts else ""
    how_far = "" if part.mode == "bench" else f", {steps.get(part.mode, both)}"
    yield f"{part.name}: {part.status}{how_far}{told}"
    error = part.error.splitlines()
    yield from (f"  {line}" for line in [*part.evaluations, *error, *part.audit, *part.findings])
    if part.metrics:
        yield "  " + "  ".join(f"{name} {value:.3g}" for name, value in part.metrics.items())


def _of_disk(disk: DiskReport) -> Iterator[str]:
    parts = ", ".join(f"{name} {_bytes(size)}" for name, size in disk.sizes.items())
    left = ""
    if disk.needed:
        steps = f"{disk.steps_left} step{'s'[: disk.steps_left != 1]}"
        left = f"; about {_bytes(disk.needed)} more for the {steps} left"
    yield f"disk: {_bytes(disk.total)} ({parts}){left}; {_bytes(disk.free)} free"
    if disk.needed > disk.free:
        yield (
            f"note: the disk will be full after about {disk.free // disk.a_step} steps. Free "
            f"space, set trainer.max_checkpoints_to_keep, lower buffer.max_samples_gb, or set "
            f"data_processor.experience_pipeline.save_input to false."
        )


def _bytes(count: int) -> str:
    """Return a size for a person.

    >>> _bytes(26_400), _bytes(1_540_000_000)
    ('26 kB', '1.5 GB')
    """
    for factor, unit in ((10**9, "GB"), (10**6, "MB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1000:.0f} kB"
