"""A run directory belongs to one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import TextIOWrapper

__all__ = ["run_lock"]

FILE_NAME = "run.lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """Who holds a lock; its process is known by number and start: numbers are used again."""

    host: str
    pid: int
    started: str  # when the process began, as the system tells it; "": unknown
    since: str  # when it took the lock

    @classmethod
    def of_this_process(cls) -> Owner:
        """Return this process as the owner."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(),
            pid=pid,
            started=_start_of(pid) or "",
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
        )

    def is_here(self) -> bool:
        """Return whether the owner ran on this machine."""
        return self.host == socket.gethostname()

    def is_gone(self) -> bool:
        """Return whether its process ended; only its own machine knows."""
        if not self.is_here():
            return False
        started = _start_of(self.pid)
        return started is None or (bool(self.started) and started != self.started)


@contextmanager
def run_lock(directory: Path, *, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a run directory inside; the lock of an owner that died is taken over with one line.

    Raises:
        ConfigError: another run has it.
    """
    path = directory / FILE_NAME
    with _held(path) as file:
        before = _read(file)
        if before is not None and not before.is_gone():
            raise ConfigError(_refusal(before, path))
        if before is not None:
            say(
                f"{directory} was held by process {before.pid} since {before.since}, which ended "
                f"without saying so: it is taken over"
            )
        _write(file, Owner.of_this_process())
    try:
        yield
    finally:
        _release(path)


def _release(path: Path) -> None:
    """Take the lock file away; one that was removed, or became another's, is left alone."""
    if not path.exists():
        return
    with contextlib.suppress(OSError, ConfigError), _held(path) as file:
        owner = _read(file)
        if owner is None or (owner.is_here() and owner.pid == os.getpid()):
            path.unlink(missing_ok=True)


def _refusal(owner: Owner, path: Path) -> str:
    who = f"the run directory {path.parent} is in use by process {owner.pid} on {owner.host}"
    if owner.is_here():
        remedy = "Wait for it or stop it, or set another name."
    else:
        remedy = f"If that run has ended, remove {path}; otherwise set another name."
    return f"{who} since {owner.since}. {remedy}"


@contextmanager
def _held(path: Path) -> Iterator[TextIOWrapper]:
    """Give the open lock file while nobody else reads or changes it.

    Raises:
        ConfigError: it cannot be opened.
    """
    file = _open_and_hold(path)
    try:
        yield file
    finally:
        file.close()  # and with it the hold


def _open_and_hold(path: Path) -> TextIOWrapper:
    while True:
        try:
            file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be opened: {error.strerror or error}. It says which run has the "
                f"directory: make it writable, or set checkpoint_root_dir to another folder."
            ) from error
        with contextlib.suppress(OSError):  # a file system without such holds
            fcntl.flock(file, fcntl.LOCK_EX)
        if _number_of(path) == os.fstat(file.fileno()).st_ino:
            return file
        file.close()  # its owner removed it while this waited


def _number_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _read(file: TextIOWrapper) -> Owner | None:
    """Return the owner; None: nobody, or one that died before it had written itself down."""
    file.seek(0)
    try:
        return Owner(**json.loads(file.read()))
    except (ValueError, TypeError):  # no JSON, no text, or no owner
        return None


def _write(file: TextIOWrapper, owner: Owner) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(asdict(owner)) + "\n")
    file.flush()


def _start_of(pid: int) -> str | None:
    """Return when a process began, "" where the system does not tell; None: there is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # another user's
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    state, *numbers = after_name.split()
    return None if state == "Z" else f"{boot} {numbers[18]}"
