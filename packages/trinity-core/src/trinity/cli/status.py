"""``trinity status``: how a run stands, living or dead."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.cli.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trinity.buffer.ledger.membership import Member
    from trinity.runtime.record.run_report import LedgerReport, WorkerReport


def status(
    run_dir: Annotated[Path, typer.Argument(help="The run directory: its header names it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    databases: Annotated[
        bool,
        typer.Option(
            "--databases",
            help="Ask the server that the run directory names, as you (PGPASSWORD, ~/.pgpass).",
        ),
    ] = False,
) -> None:
    """Say who works at a run, what each side waits for, how far it is and how old it trains.

    It reads the files of the run and its ledger, and asks no process: a dead run tells as much. A
    ledger on a server is read with --databases alone.
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
    yield f"ledger {ledger.name}: train step {ledger.trained}, {ledger.num_waiting} wait"
    for side in ledger.sides:
        yield f"  {_of_side(side)}"
    if ledger.trained:
        yield f"  age of what step {ledger.trained} trained: mean {ledger.ages[0]:.2g}, most " + (
            f"{ledger.ages[1]:.0f} steps"
        )
    if ledger.oldest_waiting is not None:
        yield f"  what waits was made by weights of version {ledger.oldest_waiting} and newer"
    if ledger.num_dropped or ledger.broken:
        yield f"  dropped: {ledger.num_dropped} experiences; {ledger.broken} broken packets"
    for name, seconds in ledger.slowest:
        yield f"  task {name} runs for {_time(seconds)}"


def _of_side(side: Member) -> str:
    state = "silent" if side.is_silent else side.state
    waits = f", waits for {side.waits_for}" if side.waits_for and state == "working" else ""
    return (
        f"{side.name}: {state}, step {side.step}, weights of version {side.version}{waits} "
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
