"""Wait for a launched command, within limits of all its processes together."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import selectors
import signal
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from trinity.errors import EnvError

from trinity_sandbox.disk import DiskLimit

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

__all__ = ["Ended", "run_client", "run_supervised"]

logger = logging.getLogger("trinity.sandbox")

_SAMPLED_EVERY_S = 0.05
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_TO_DIE_S = 60  # a process may wait for a disk
_LAUNCHERS = 2  # of bubblewrap: outside, and the first inside; of landlock: who waits


class _Limits(Protocol):  # base.Limits, which imports this module
    @property
    def cpu_s(self) -> float: ...
    @property
    def wall_s(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def processes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """As ``base.CommandResult``; ``failure``: why the command did not even start."""

    exit: int
    stdout: bytes
    stderr: bytes
    reason: str
    failure: str


@dataclass(kw_only=True, slots=True)
class _Watched:
    process: subprocess.Popen[bytes]
    limits: _Limits
    disk: DiskLimit
    stopped: threading.Event
    is_client: bool = False  # what it runs has limits elsewhere
    read: dict[str, bytearray] = field(
        default_factory=lambda: {
            "stdout": bytearray(),
            "stderr": bytearray(),
            "status": bytearray(),
        }
    )

    def until_it_ends(self, status: int) -> str:
        """Return the limit that was passed; "": none, and it ended."""
        end = time.monotonic() + self.limits.wall_s
        sample_at = time.monotonic() + _SAMPLED_EVERY_S
        with selectors.DefaultSelector() as pipes:
            for name, pipe in (("stdout", self.process.stdout), ("stderr", self.process.stderr)):
                assert pipe is not None
                pipes.register(pipe.fileno(), selectors.EVENT_READ, name)
            pipes.register(status, selectors.EVENT_READ, "status")
            while self.process.poll() is None:
                self._read_from(pipes, _SAMPLED_EVERY_S if pipes.get_map() else None)
                if reason := self._ended_by(end):
                    return reason
                if time.monotonic() > sample_at:
                    sample_at = time.monotonic() + _SAMPLED_EVERY_S
                    if reason := self._over():
                        return reason
            while self._read_from(pipes, 0.0) and not self._has_too_much_output:
                pass
        return "output" if self._has_too_much_output else ""

    def _ended_by(self, end: float) -> str:
        """Return why it must end, as far as that is known without looking at its processes."""
        if self._has_too_much_output:
            return "output"
        if time.monotonic() > end:
            return "wall_time"
        return "stopped" if self.stopped.is_set() else ""

    @property
    def _has_too_much_output(self) -> bool:
        return any(len(text) > self.limits.output_bytes for text in self.read.values())

    def _read_from(self, pipes: selectors.BaseSelector, wait_s: float | None) -> bool:
        """Read what is there, waiting at most so long for it; None: no pipe is left to wait for."""
        if wait_s is None:
            time.sleep(_SAMPLED_EVERY_S / 10)
            return False
        ready = [key for key, _ in pipes.select(wait_s)] if pipes.get_map() else []
        for key in ready:
            part = os.read(key.fd, 1 << 16)
            self.read[key.data] += part
            if not part:
                pipes.unregister(key.fd)
        return bool(ready)

    def _over(self) -> str:
        """Return the limit that all processes together passed, as of now."""
        cpu_s, memory, number = 0.0, 0, 0
        waiting, pids = [] if self.is_client else [self.process.pid], []
        while waiting:
            pid = waiting.pop()
            pids.append(pid)
            with suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                cpu_s += sum(map(int, words[11:15])) / _TICKS_A_SECOND
                number += int(words[17])
                memory += int(words[21]) * _PAGE
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    waiting += map(int, children.read_text().split())
        passed = {
            "cpu_time": cpu_s > self.limits.cpu_s,
            "memory": memory > self.limits.memory_bytes,
            "processes": number > self.limits.processes + _LAUNCHERS,
        }
        reason = next((reason for reason, is_over in passed.items() if is_over), "")
        return reason or self.disk.passed(pids)


def run_supervised(
    launch: Sequence[str],
    *,
    stdin: IO[bytes],
    folder: Path,
    limits: _Limits,
    stopped: threading.Event,
) -> Ended:
    """Run a launcher, whose last argument is JSON: it gets a ``status_fd`` to report to.

    Raises:
        EnvError: the launcher cannot be started.
    """
    status, tell = os.pipe()
    setup = json.dumps(json.loads(launch[-1]) | {"status_fd": tell})
    start = _Start(argv=[*launch[:-1], setup], status=status, tell=tell)
    return _watched(start, stdin=stdin, folder=folder, limits=limits, stopped=stopped)


def run_client(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: IO[bytes],
    folder: Path,
    limits: _Limits,
    stopped: threading.Event,
) -> Ended:
    """Run a client of a daemon within limits of time, output and disk; others hold elsewhere.

    Raises:
        EnvError: it cannot be started.
    """
    status, tell = os.pipe()
    start = _Start(argv=argv, status=status, tell=tell, env=env, is_client=True)
    return _watched(start, stdin=stdin, folder=folder, limits=limits, stopped=stopped)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Start:
    argv: Sequence[str]
    status: int  # where the launcher's words are read
    tell: int  # where it writes them; a client does not
    env: Mapping[str, str] = field(default_factory=dict)
    is_client: bool = False


def _watched(
    start: _Start, *, stdin: IO[bytes], folder: Path, limits: _Limits, stopped: threading.Event
) -> Ended:
    disk = DiskLimit(folder, limits.disk_bytes, stdin.fileno())
    try:
        process = subprocess.Popen(
            start.argv,
            cwd=folder,
            env=start.env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if start.is_client else (start.tell,),
        )
    except OSError as error:
        os.close(start.status)
        raise EnvError(f"the process of a sandbox cannot be started: {error}") from error
    finally:
        os.close(start.tell)
    watched = _Watched(
        process=process, limits=limits, disk=disk, stopped=stopped, is_client=start.is_client
    )
    with process, closing(disk):
        try:
            reason = watched.until_it_ends(start.status)
        finally:
            inside = _first_inside(watched.read["status"])
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            os.close(start.status)
    _wait_until_gone(process.pid, inside)
    return _ended(watched, reason, is_client=start.is_client)


def _first_inside(said: bytearray) -> int | None:
    """Return a handle of bubblewrap's first process inside, with which all others there end."""
    found = re.search(rb'"child-pid": *(\d+)', said)
    with suppress(OSError, AttributeError):  # it is gone; or a system without such handles
        return os.pidfd_open(int(found[1])) if found else None
    return None


def _wait_until_gone(group: int, inside: int | None) -> None:
    """Wait for processes that were killed, or that the kernel kills: until then they may write."""
    end = time.monotonic() + _MOST_TO_DIE_S
    if inside is not None:
        gone = select.poll()
        gone.register(inside, select.POLLIN)
        is_gone = bool(gone.poll(1000 * _MOST_TO_DIE_S))
        os.close(inside)
    else:
        is_gone = True
    while (lives := _lives(group)) and time.monotonic() < end:
        time.sleep(_SAMPLED_EVERY_S / 10)
    if lives or not is_gone:
        logger.warning(
            "a command in a sandbox was killed %g s ago, and has processes that did not end: they "
            "may still write. Look for those in state D (ps), which wait for a disk or a network.",
            _MOST_TO_DIE_S,
        )


def _lives(group: int) -> bool:
    """Return whether a process group has one that has not ended; one nobody waits for has."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # they have another user
        pass
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            words = stat.read_text().rpartition(")")[2].split()
            has_ended = words[0] in "ZX" and int(words[17]) <= 1  # else its threads go on
            if int(words[2]) == group and not has_ended:
                return True
    return False


def _ended(watched: _Watched, reason: str, *, is_client: bool) -> Ended:
    said = watched.read["status"].decode(errors="replace")
    code = watched.process.wait()
    failure = said.partition("failed: ")[2]
    has_run = '"exit-code"' in said or '"child-pid"' not in said  # bubblewrap says both
    if not failure and not (has_run or is_client or reason) and code > 0:
        failure = watched.read["stderr"].decode(errors="replace").strip()
    if '"child-pid"' in said and code > 128:  # a signal, as a shell tells it
        code = 128 - code
    if not reason and code in {-signal.SIGXCPU, -signal.SIGXFSZ}:
        reason = "cpu_time" if code == -signal.SIGXCPU else "output"
    top = watched.limits.output_bytes
    return Ended(
        exit=code,
        stdout=bytes(watched.read["stdout"][:top]),
        stderr=bytes(watched.read["stderr"][:top]),
        reason=reason,
        failure=failure,
    )
