"""``trinity log``: read what a run and each of its workers logged."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from trinity.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from trinity_debug.log_files import LogFile, LogRecord

FOLLOW_S = 0.5  # between two looks at the files
_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}
_LEVELS = ("debug", "info", "warning", "error", "critical")


def log(  # noqa: PLR0913, PLR0917 -- the options of a command
    run_dir: Annotated[
        Path | None, typer.Argument(help="The run directory; the header of a run prints it.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The YAML file of the run, instead of RUN_DIR."),
    ] = None,
    worker: Annotated[
        str,
        typer.Option(
            "--worker",
            "--room",
            help="Only this process: driver, trainer, runner-0, engine-0, ...",
        ),
    ] = "",
    level: Annotated[str, typer.Option(help="Lowest level to show.")] = "debug",
    run: Annotated[
        str, typer.Option(help="Only messages about this rollout: BATCH/TASK/RUN, as 3/7/0.")
    ] = "",
    lines: Annotated[
        int, typer.Option("--lines", "-n", help="Only the last N records; 0: all.")
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")
    ] = False,
) -> None:
    """Show the logs of all processes of a run, sorted by time."""
    from rich.console import Console

    directory, least = _directory(run_dir, config), _level(level)
    files = _files(directory, worker)
    is_wanted, console = _names(run), Console(highlight=False)
    records = filter(is_wanted, _records(files, least))
    for record in deque(records, maxlen=lines) if lines else records:
        _show(console, record)
    while follow:
        try:
            time.sleep(FOLLOW_S)
        except KeyboardInterrupt:
            return
        files += _new_files(directory, worker, files)
        for record in filter(is_wanted, _records(files, least)):
            _show(console, record)


def _directory(run_dir: Path | None, config: Path | None) -> Path:
    """Return the run directory that is meant."""
    if (run_dir is None) == (config is None):
        raise typer.BadParameter("name either a run directory or a --config")
    if run_dir is not None:
        return _with_logs(run_dir)
    from trinity.common.config import load_config
    from trinity.runtime.record.rundir import RunDir

    assert config is not None
    return RunDir.of(load_config(config)).path


def _with_logs(directory: Path) -> Path:
    """Return the run directory; that of a stage's run, whose logs are one folder up."""
    from trinity_debug.log_files import log_files

    above = directory.absolute().parent
    is_stage = (directory / "run.json").exists() and not log_files(directory)
    return above if is_stage and log_files(above) else directory


def _level(name: str) -> int:
    if name.lower() not in _LEVELS:
        raise typer.BadParameter(unknown_name("level", name, _LEVELS))
    return logging.getLevelNamesMapping()[name.upper()]


def _files(directory: Path, worker: str) -> list[LogFile]:
    """Return the files to read, at least one.

    Raises:
        ConfigError: there is no run in the directory, or no such worker in the run.
    """
    from trinity_debug.log_files import log_files

    files = log_files(directory)
    if not files:
        raise ConfigError(
            f"there is no log of a run in {directory}. Name the run directory; the header of the "
            "run prints it. Or name the run's --config."
        )
    chosen = [file for file in files if _is_meant(file, worker)]
    if not chosen:
        workers = {file.worker for file in files}
        raise ConfigError(f"{directory}: {unknown_name('process', worker, workers)}")
    return chosen


def _new_files(directory: Path, worker: str, known: list[LogFile]) -> list[LogFile]:
    from trinity_debug.log_files import log_files

    paths = {file.path for file in known}
    found = [file for file in log_files(directory) if file.path not in paths]
    return [file for file in found if _is_meant(file, worker)]


def _is_meant(file: LogFile, worker: str) -> bool:
    return not worker or worker in {file.worker, file.worker.rpartition("/")[2]}


def _records(files: list[LogFile], level: int) -> Iterator[LogRecord]:
    from trinity_debug.log_files import merged

    return merged(files, level=level)


def _names(run: str) -> Callable[[LogRecord], bool]:
    """Return what tells whether a record is about a run of a task; no run: each is."""
    if not run:
        return lambda record: True
    batch_and_task, _, number = run.rpartition("/")
    if not batch_and_task or not number.isdecimal():
        raise typer.BadParameter(f"run is {run!r}; write BATCH/TASK/RUN, as 3/7/0")
    named = rf"\brun {re.escape(run)}(?!\d)"
    failed = rf"\b{re.escape(batch_and_task)} \([^)]*\), run {number}(?!\d)"
    pattern = re.compile(f"{named}|{failed}")
    return lambda record: pattern.search(record.text) is not None


def _show(console: Console, record: LogRecord) -> None:
    """Print a record: time, worker, level and message on one line, what follows indented."""
    from rich.text import Text

    head, *rest = record.text.split("\n")
    level = logging.getLevelName(record.level)
    said_by = "" if record.logger.startswith("trinity") or not record.logger else record.logger
    line = Text.assemble(
        (f"{record.time:<23}", "dim"),
        (f" {record.worker:<12}", "cyan"),
        (f" {level:<8}", _STYLES.get(level, "dim")),
        f" {said_by + ': ' if said_by else ''}{head}",
    )
    for more in rest:
        line.append(f"\n    {more}", _STYLES.get(level, ""))
    console.print(line, soft_wrap=True)
