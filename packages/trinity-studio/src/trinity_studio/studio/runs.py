"""Start a run that outlives the page, know it again later, and stop it as Ctrl-C does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.runtime.record.lock import Owner, owners

from trinity_studio.studio.writing import write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StudioRun", "runs_below", "start"]

FOLDER = ".studio"  # in the run directory: what the page knows of a run that it started
BEGINNING_S = 30.0
MOST_SHOWN = 20_000  # bytes of the log


@dataclass(frozen=True, kw_only=True)
class StudioRun:
    """A run in its directory, whoever started it; its files alone say how it stands."""

    directory: Path

    @property
    def config(self) -> Path:
        """Return the file that it was started with from a page."""
        return self.directory / FOLDER / "page.yaml"

    @property
    def log(self) -> Path:
        """Return what it printed."""
        return self.directory / FOLDER / "output.log"

    @property
    def process_file(self) -> Path:
        """Return the file that says which process it is."""
        return self.directory / FOLDER / "process.json"

    def processes(self) -> list[Owner]:
        """Return the processes of this machine that work at it.

        The process that a page started waits for its child, the run; as soon as that holds the
        directory, it stands for both.
        """
        try:
            found = list(owners(self.directory).values())
        except OSError:
            found = []
        started = self._started()
        known = {pid for one in found for pid in (one.pid, _parent_of(one.pid))}
        if started is not None and started.pid not in known:
            found.append(started)
        return [one for one in found if one.is_here() and not one.is_gone()]

    def _started(self) -> Owner | None:
        try:
            return Owner(**json.loads(self.process_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # not started from a page, or not yet
            return None

    def stop(self) -> int:
        """Ask each process to stop, as Ctrl-C does: the step is finished and saved first.

        Asked once more, they stop at once. Returns how many were asked.
        """
        return sum(map(_interrupt, self.processes()))

    def tail(self) -> str:
        """Return the end of what it printed."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - MOST_SHOWN))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def start(
    text: str,
    *,
    directory: Path,
    is_local: bool,
    options: Sequence[str] = (),
    is_anew: bool = False,
) -> StudioRun:
    """Start a run in a session of its own; it goes on when the page and the studio end.

    Args:
        text: of its YAML file.
        directory: that the configuration names.
        is_local: whether all of it runs in one process, without Ray.
        options: of ``trinity`` itself, such as ``--plugin-dir DIR``.
        is_anew: whether a run in that directory is left alone, and this one gets another.

    Raises:
        ConfigError: a process works in that directory already, or it cannot be written.
    """
    settings: list[str] = []
    if is_anew:
        directory = _unused(directory)
        settings = ["--set", f"name={directory.name}", "--set", "continue_from_checkpoint=true"]
    run = StudioRun(directory=directory.absolute())
    if held := run.processes():
        raise ConfigError(
            f"process {held[0].pid} works in {directory} since {held[0].since}. Stop it first, or "
            f"give the run another name."
        )
    local = ["--local"] if is_local else []
    command = [*options, "run", "--config", str(run.config), *local, *settings]
    try:
        run.config.parent.mkdir(parents=True, exist_ok=True)
        write_file(run.config, text)
        run.process_file.unlink(missing_ok=True)
        _launch(run, command)
    except OSError as error:
        raise ConfigError(
            f"the run cannot be started in {directory}: {error.strerror or error}. Set "
            f"checkpoint_root_dir to a folder that you may write to."
        ) from error
    return run


def _unused(directory: Path) -> Path:
    """Return the directory, or one of its name and the time where a run has it."""
    if not directory.exists() or not any(directory.iterdir()):
        return directory
    return directory.with_name(f"{directory.name}_{time.strftime('%Y%m%d%H%M%S')}")


def _launch(run: StudioRun, command: Sequence[str]) -> None:
    launcher = [sys.executable, "-m", "trinity_studio.studio.launched", str(run.process_file)]
    with run.log.open("ab") as log:
        process = subprocess.Popen(
            [*launcher, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie
    limit = time.monotonic() + BEGINNING_S
    while not run.process_file.exists() and process.returncode is None:
        if time.monotonic() > limit:
            raise OSError(f"no process after {BEGINNING_S:.0f} s")
        time.sleep(0.02)


def _parent_of(pid: int) -> int | None:
    """Return the process that started another; None: it has ended, or this is no Linux."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])  # its name, in brackets, may be anything
    except (OSError, ValueError, IndexError):
        return None


def _interrupt(owner: Owner) -> bool:
    """Send Ctrl-C's signal to that very process, not to another that has its number since."""
    try:
        handle = os.pidfd_open(owner.pid)
    except (OSError, AttributeError):
        handle = None
    try:
        if owner.is_gone():
            return False
        if handle is None:
            os.kill(owner.pid, signal.SIGINT)
        else:
            signal.pidfd_send_signal(handle, signal.SIGINT)
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def runs_below(root: Path) -> list[StudioRun]:
    """Return the runs below a folder that a page started, the last one first."""
    found = [path.parent.parent for path in root.glob(f"*/*/{FOLDER}/page.yaml")]
    found += [path.parent.parent for path in root.glob(f"*/*/*/{FOLDER}/page.yaml")]
    runs = [StudioRun(directory=path.absolute()) for path in found]
    return sorted(runs, key=lambda run: _time_of(run.config), reverse=True)


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
