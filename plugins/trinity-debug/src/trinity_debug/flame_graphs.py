"""Sample the processes of a run that goes on, for flame graphs: py-spy, one SVG a process.

run.lock, trinity.log --> processes --py-spy for so many seconds--> profile/<time>/<worker>.svg

The run is not asked, and need not be started anew: one that hangs is seen as well as one that is
slow.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.runtime.record.lock import owners

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trinity.runtime.record.lock import Owner

FOLDER = "profile"
INSTALL = "python -m pip install py-spy"
PATIENCE_S = 60.0  # beyond the time that is sampled
_STARTED = re.compile(
    r"^(\S+ \S+),\d+ .*: ([\w-]+) started: node (\S+), process (\d+),", re.MULTILINE
)
_SLACK_S = 2.0  # the system tells when it was booted in whole seconds, a log likewise
_TIME = "%Y-%m-%d %H:%M:%S"  # of a line of a log
_TITLE = b"ray::"  # begins the command line of a worker, whatever number it has
_IDLE = b"ray::IDLE"  # a worker of Ray that is nobody's worker
_FORBIDDEN = (
    "this user may not look into that process: run the command as root, or as who runs it with "
    "kernel.yama.ptrace_scope = 0"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """What became of one process."""

    name: str
    path: Path  # of the SVG
    problem: str = ""  # why there is none


def flame_graphs(directory: Path, *, seconds: int) -> list[Graph]:
    """Sample all processes of a run on this machine, side by side.

    Args:
        directory: of the run, or of a stage.
        seconds: for how long.

    Raises:
        ConfigError: py-spy is not installed, or no process of the run is here.
    """
    beside = str(Path(sys.executable).parent)
    program = shutil.which("py-spy") or shutil.which("py-spy", path=beside)
    if program is None:
        raise ConfigError(f"--profile needs py-spy, which is not installed. Run: {INSTALL}")
    found = processes_of(directory)
    if not found:
        raise ConfigError(
            f"no process on this machine has {directory} now, so there is nothing to sample. Start "
            f"the run, or name one that goes on; trinity status tells where a run is."
        )
    folder = _made(directory / FOLDER)
    paths = {name: folder / f"{name}.svg" for name in found}
    started = [
        (name, subprocess.Popen(
            _command(program, pid, seconds=seconds, path=paths[name]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ))
        for name, pid in found.items()
    ]  # fmt: skip
    graphs = [
        Graph(name=name, path=paths[name], problem=_problem(one, paths[name], seconds=seconds))
        for name, one in started
    ]
    for empty in (folder, folder.parent):  # where nothing could be sampled
        with suppress(OSError):
            empty.rmdir()
    return graphs


def processes_of(directory: Path) -> dict[str, int]:
    """Return the processes of a run on this machine by name: drivers, and workers that it logged.

    Raises:
        ConfigError: this user may not read who has the directory.
    """
    found: dict[str, int] = {}
    for folder in (directory, directory.parent):  # a stage's run has the lock
        for part, owner in _owners(folder).items():
            if owner.is_here():
                found.setdefault(f"driver-{part}" if part else "driver", owner.pid)
        if found:
            return found | dict(_workers(folder))
    return found


def _owners(folder: Path) -> dict[str, Owner]:
    try:
        return owners(folder)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be read: {error.strerror or error}. It says which "
            f"process has the run: run the command as who runs it, or as root."
        ) from error


def _made(profiles: Path) -> Path:
    """Return a folder that is there now, and that no other call has.

    Raises:
        ConfigError: it cannot be made.
    """
    now = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):  # ends with the first that nobody has
        folder = profiles / (now if number == 1 else f"{now}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_dir():
                continue
            raise _unwritable(folder, "a file is in its place") from None
        except OSError as error:
            raise _unwritable(folder, error.strerror or str(error)) from error
        return folder
    raise AssertionError


def _unwritable(folder: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the flame graphs cannot be written to {folder}: {why}. Let this user write to the run "
        f"directory."
    )


def _workers(folder: Path) -> Iterator[tuple[str, int]]:
    """Give the workers of the last start that live."""
    for log in [folder / "trinity.log", *sorted(folder.glob("explorers/*/trinity.log"))]:
        own = "" if log.parent == folder else f"{log.parent.name}-"
        last = {name: (host, int(pid), told) for told, name, host, pid in _started(log)}
        for name, (host, pid, told) in last.items():
            if host == platform.node() and _is_worker(pid) and _began_before(pid, told):
                yield f"{own}{name}", pid


def _started(log: Path) -> Iterable[tuple[str, str, str, str]]:
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a run that has none yet
        return []
    return _STARTED.findall(text)


def _is_worker(pid: int) -> bool:
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
        return title.startswith(_TITLE) and not title.startswith(_IDLE)
    except OSError:
        return False


def _began_before(pid: int, told: str) -> bool:
    """Return whether a process is older than the line that names it: numbers are used again."""
    try:
        boot = re.search(r"^btime (\d+)", Path("/proc/stat").read_text("utf-8"), re.MULTILINE)
        after_name = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2]
        logged = datetime.strptime(told, _TIME).timestamp()
    except (OSError, ValueError):
        return False
    if boot is None:
        return False
    began = int(boot[1]) + int(after_name.split()[19]) / os.sysconf("SC_CLK_TCK")
    return began < logged + _SLACK_S


def _command(program: str, pid: int, *, seconds: int, path: Path) -> list[str]:
    return [program, "record", "--pid", str(pid), "--duration", str(seconds), "--output", str(path)]


def _problem(sampling: subprocess.Popen[str], path: Path, *, seconds: int) -> str:
    """Wait for py-spy; return why it wrote nothing."""
    try:
        _, said = sampling.communicate(timeout=seconds + PATIENCE_S)
    except subprocess.TimeoutExpired:
        sampling.kill()
        sampling.communicate()
        return f"py-spy did not end in {seconds + PATIENCE_S:.0f} s"
    if path.is_file():
        return ""
    text = " ".join(said.split())
    return _FORBIDDEN if "ermission" in text else text[-300:] or "nothing ran in it"
