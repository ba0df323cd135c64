"""``trinity status``: how a run stands, living or dead."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.cli.output import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trinity.buffer.ledger.membership import Member
    from trinity.runtime.record.run_report import LedgerReport, WorkerReport


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
    from trinity.runtime.record.run_report import read_standing

    standing = read_standing(run_dir, may_ask_servers=databases)
    if as_json:
        typer.echo(json.dumps({"schema": 1, **asdict(standing)}, indent=2))
        return
    _print([f"run directory {standing.directory}"])
    for part in standing.parts:
        _print(_of_part(part))
    if standing.ledger is not None:
        _print(_of_ledger(standing.ledger))
    problem = [standing.ledger_problem] if standing.ledger_problem else []
    _print(f"note: {line}" for line in [*standing.notes, *problem])
    age = f", written {_time(standing.checkpoint_s)} ago" if standing.checkpoint_s else ""
    typer.echo(f"last checkpoint: {standing.checkpoint or 'none'}{age}")


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(plain(line))


def _of_part(part: WorkerReport) -> Iterator[str]:
    steps = {"train": f"train step {part.train_steps}", "explore": f"step {part.explore_steps}"}
    both = f"explore step {part.explore_steps}, train step {part.train_steps}"
    holder = f"process {part.pid}" if part.pid is not None else "no living process here"
    last = f", last metrics {_time(part.last_s)} ago" if part.last_s is not None else ""
    yield f"{part.name}: {part.status}, {steps.get(part.mode, both)} ({holder}{last})"
    if part.error:
        yield f"  {part.error}"
    if part.metrics:
        yield "  " + "  ".join(f"{name} {value:.3g}" for name, value in part.metrics.items())


def _of_ledger(ledger: LedgerReport) -> Iterator[str]:
    yield f"ledger {ledger.name}: train step {ledger.trained}, {ledger.num_waiting} untrained"
    for side in ledger.sides:
        yield f"  {_of_side(side)}"
    if ledger.trained:
        yield f"  staleness of train step {ledger.trained}: mean {ledger.ages[0]:.2g}, max " + (
            f"{ledger.ages[1]:.0f} off-policy steps"
        )
    if ledger.oldest_waiting is not None:
        yield f"  oldest policy version of untrained experiences: {ledger.oldest_waiting}"
    if ledger.num_dropped or ledger.broken:
        yield f"  dropped: {ledger.num_dropped} experiences; {ledger.broken} broken packets"
    for name, seconds in ledger.slowest:
        yield f"  task {name} has been running for {_time(seconds)}"


def _of_side(side: Member) -> str:
    state = "silent" if side.is_unresponsive else side.state
    waits = f", waits for {side.waits_for}" if side.waits_for and state == "working" else ""
    return (
        f"{side.name}: {state}, step {side.step}, policy version {side.version}{waits} "
        f"({side.where()})"
    )


def _time(seconds: float | None) -> str:
    """Return a time for a person.

    >>> _time(7.4), _time(200), _time(9000), _time(200000)
    ('7 s', '3 min', '2.5 h', '2.3 days')
    """
    seconds = seconds or 0.0
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86400 else f"{seconds / 86400:.1f} days"
