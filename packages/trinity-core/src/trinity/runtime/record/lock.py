"""A run directory belongs to one run at a time.

``run.lock`` says whose it is: a file lock of the system would end with its process, but not tell
who had it, and outlive a process that was forked from it. Such a lock guards only the moment in
which the file is read and changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from trinity.errors import ConfigError
from trinity.runtime.record.memory_record import last_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE_NAME = "run.lock"  # says who has the directory
MEMORY_NAME = "run.memory"  # how much of it the run has used
GUARD_NAME = ".run.lock"  # who reads or changes the other; the system lets go of it with a process
GUARD_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """Who holds a lock; its process is known by number and start: numbers are used again."""

    host: str
    pid: int
    started: str  # when the process began, as the system tells it; "": unknown
    since: str  # when it took the lock

    def __post_init__(self) -> None:
        """Refuse what is no number of a process, as a damaged file has it.

        Raises:
            ValueError: it is none; signals to 0 or less go to many.
        """
        if type(self.pid) is not int or self.pid < 1:
            raise ValueError(f"{self.pid!r} is no process")

    @classmethod
    def of_this_process(cls) -> Owner:
        pid = os.getpid()
        return cls(
            host=socket.gethostname(),
            pid=pid,
            started=_start_of(pid) or "",
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
        )

    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    def is_gone(self) -> bool:
        """Return whether its process ended; only its own machine knows."""
        if not self.is_here():
            return False
        started = _start_of(self.pid)
        return started is None or (bool(self.started) and started != self.started)


@contextmanager
def run_lock(directory: Path, *, say: Callable[[str], None], part: str = "") -> Iterator[Path]:
    """Hold a run directory inside; the lock of an owner that died is taken over with one line.

    Args:
        directory: of the run.
        say: tells that line.
        part: which side of the run this is, where explorer and trainer are runs of their own; it
            keeps out who has all of the directory, and who has the same part. "": all of it.

    Yields:
        where the run notes how much memory it uses.

    Raises:
        ConfigError: another run has it, or the lock cannot be read or written.
    """
    path = directory / (f"{FILE_NAME}.{part}" if part else FILE_NAME)
    memory = directory / path.name.replace(FILE_NAME, MEMORY_NAME, 1)
    with _alone(directory), _explained(path):
        for other in [directory / FILE_NAME] if part else directory.glob(f"{FILE_NAME}.*"):
            held = _read(other)
            if held is not None and not held.is_gone():
                raise ConfigError(_refusal(held, other))
        before = _read(path)
        if before is not None and not before.is_gone():
            raise ConfigError(_refusal(before, path))
        if before is not None:
            say(
                f"{directory} was held by process {before.pid} since {before.since}, which ended "
                f"without saying so{last_memory(memory)}: it is taken over"
            )
        path.write_text(json.dumps(asdict(Owner.of_this_process())) + "\n", encoding="utf-8")
    try:
        yield memory
    finally:
        _release(path)


def is_held(directory: Path) -> bool:
    """Return whether a run has a directory now, as far as it can be told without touching it."""
    try:
        return bool(owners(directory))
    except OSError:
        return False


def owners(directory: Path) -> dict[str, Owner]:
    """Return who holds a run directory, or parts of it, by the part ("": all), if they live."""
    found = {}
    for path in [directory / FILE_NAME, *sorted(directory.glob(f"{FILE_NAME}.*"))]:
        owner = _read(path)
        if owner is not None and not owner.is_gone():
            found[path.name.removeprefix(FILE_NAME).removeprefix(".")] = owner
    return found


def _release(path: Path) -> None:
    """Take the lock file away; one that was removed, or became another's, is left alone."""
    with contextlib.suppress(OSError), _alone(path.parent):
        owner = _read(path) if path.exists() else None
        if owner is not None and owner.is_here() and owner.pid == os.getpid():
            path.unlink()


def _refusal(owner: Owner, path: Path) -> str:
    who = f"the run directory {path.parent} is in use by process {owner.pid} on {owner.host}"
    if owner.is_here():
        remedy = "Wait for it or stop it, or set another name."
    else:
        remedy = f"If that run has ended, remove {path}; otherwise set another name."
    return f"{who} since {owner.since}. {remedy}"


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Let one process at a time inside, as far as the file system can tell them apart."""
    guard = FileLock(directory / GUARD_NAME, timeout=GUARD_TIMEOUT_S)
    is_held = False
    with contextlib.suppress(OSError):  # a file system without such locks, or a held one that hangs
        guard.acquire(poll_interval=0.005)
        is_held = True
    try:
        yield
    finally:
        if is_held:
            guard.release()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be opened: {error.strerror or error}. It says which run has the "
            f"directory: make it writable, or set checkpoint_root_dir to another folder."
        ) from error


def _read(path: Path) -> Owner | None:
    """Return the owner; None: nobody, or one that died before it had written itself down."""
    try:
        return Owner(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # no JSON, no text, or no owner
        return None


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
