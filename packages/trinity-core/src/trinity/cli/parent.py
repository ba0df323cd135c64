"""The process that ``trinity run`` begins as: it waits for the run, which is its child.

The exit code is the child's; but one that ends with 0 and has not told so has not finished: a part
called exit or exec of the system. With ``--restart`` a run that was killed, or lost a worker or a
process of Ray, is started again, unless a step fails for the second time.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trinity.starting import INTERRUPTED, parent

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0  # before a restart: twice as long each time
_HEARD_S = 0.3  # within which a child has a signal that was sent to both
_TAIL = 1 << 20  # bytes of metrics.jsonl that are read
_STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # asked to end: never started again
_PASSED = (*_STOPS, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_KILLED_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def stay_behind(arguments: Sequence[str]) -> None:
    """Return in a child where a run is asked for, and wait for it here, or else at once."""
    if hasattr(os, "fork") and _is_run(arguments):
        waiting = _Parent()
        while waiting.begins():
            waiting.follow()


def _is_run(arguments: Sequence[str]) -> bool:
    words = iter(arguments)
    for word in words:
        if word in {"-P", "--plugin-dir"}:
            next(words, None)
        elif not word.startswith("-"):
            return word == "run"
    return False


class _Parent:
    def __init__(self) -> None:
        self._wake, write = os.pipe()
        os.set_blocking(write, False)
        self._num_restarts = 0
        self._failed: set[str] = set()  # where the run stood then
        self._is_asked_to_stop = False
        numbers = [n for n in _PASSED if signal.getsignal(n) is not signal.SIG_IGN]
        self._before = {number: signal.getsignal(number) for number in [*numbers, signal.SIGCHLD]}
        for number in self._before:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def begins(self) -> bool:
        """Start the run; return False in its process."""
        told, heard, me = os.pipe(), os.pipe(), os.getpid()
        os.set_blocking(heard[1], False)
        signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _end_with(me)
            for number, handler in self._before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(heard[1], warn_on_full_buffer=False)
            parent[:] = [(os.getpid(), told[1], self._num_restarts)]
        else:
            os.close(told[1])
            os.close(heard[1])
            self._told, self._heard = told[0], heard[0]
            self._early: list[int] = []  # signals that the child had before they came here
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before)
        return self._pid != 0

    def follow(self) -> None:
        """Wait for the run; return where it is to be started again, and end as it did elsewhere."""
        code = self._awaited()
        facts = self._facts = _read(self._told)
        os.close(self._heard)
        if code == 0 and "ended" not in facts:
            _say(
                "Error: the process of the run ended with exit code 0, and the run has not "
                "finished: one of its parts called exit or exec of the system. Raise an error "
                "there instead; the same command goes on from what is saved."
            )
            code = 1
        why = "" if self._is_asked_to_stop else _why_again(code, facts)
        limit, place = facts.get("restart", 0), _place_of(facts.get("directory", ""))
        if not why or not limit:
            if why and not {"ended", "said"} & facts.keys():
                _say(
                    f"Error: {why}: it was ended from outside, had no memory left, or a library "
                    f"ended it, as Ray's does where Ray is stopped. The same command goes on from "
                    f"what is saved."
                )
            _end_as(code)
        if self._num_restarts >= limit or place in self._failed:
            before = f"after {limit} restarts of {limit}"
            if place in self._failed:
                before = f"and the run had failed {place} before. Its log says what happened there"
            self._note(f"not restarted: {why}, {before}; the same command tries again")
            _end_as(code)
        self._failed.add(place)
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._num_restarts)
        self._num_restarts += 1
        number = f"restart {self._num_restarts} of {limit} in {wait_s:.0f} s"
        self._note(f"{number}: {why} {place}; it continues from what is saved")
        deadline = time.monotonic() + wait_s
        while (left_s := deadline - time.monotonic()) > 0:
            if _STOPS.intersection(self._signals(left_s)):
                self._note("stopped at once, before the restart: the same command goes on")
                _end_as(INTERRUPTED)

    def _awaited(self) -> int:
        """Pass on signals until the child ends; return its exit code, below 0 that of a signal."""
        while True:
            for number in self._signals(None):
                if number == signal.SIGCHLD:
                    pid, status = os.waitpid(self._pid, os.WNOHANG)
                    if pid:
                        return os.waitstatus_to_exitcode(status)
                    continue
                self._is_asked_to_stop |= number in _STOPS
                if not self._has_heard(number):
                    os.kill(self._pid, number)
                    self._has_heard(number)  # so that it is not taken for another's

    def _signals(self, timeout_s: float | None) -> bytes:
        ready = select.select([self._wake], [], [], timeout_s)[0]
        return os.read(self._wake, 64) if ready else b""

    def _has_heard(self, number: int) -> bool:
        """Return whether the child has had a signal that came here, or has it in a moment."""
        deadline = time.monotonic() + _HEARD_S
        while number not in self._early:
            left_s = max(0.0, deadline - time.monotonic())
            ready = select.select([self._heard], [], [], left_s)[0]
            if not ready or not (got := os.read(self._heard, 64)):
                return False
            self._early += got
        self._early.remove(number)
        return True

    def _note(self, line: str) -> None:
        _say(line)
        directory, at = self._facts.get("directory"), time.strftime("%Y-%m-%d %H:%M:%S,000")
        if directory:
            with contextlib.suppress(OSError), Path(directory, "trinity.log").open("a") as log:
                log.write(f"{at} WARNING {__name__}: {line}\n")


def _read(pipe: int) -> dict[str, Any]:  # Any: json
    """Return what a child told until it ended; a process it left may keep the pipe open."""
    os.set_blocking(pipe, False)
    with open(pipe, "rb", buffering=0) as file:
        lines = (file.read(1 << 20) or b"").splitlines()
    return {name: value for line in lines for name, value in json.loads(line).items()}


def _end_with(pid: int) -> None:
    """Let the system kill this process when its parent is; elsewhere than on Linux it stays."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_KILLED_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != pid:  # that was too late
        os._exit(1)


def _why_again(code: int, facts: dict[str, Any]) -> str:
    """Return why a supervisor would start the run again; empty: it would not."""
    if code in {0, INTERRUPTED} or -code in _STOPS:
        return ""
    if "ended" in facts:
        return str(facts.get("lost", ""))
    if code < 0:
        return f"the run was ended by {signal.Signals(-code).name}"
    return f"the run ended with exit code {code} and did not say why"


def _place_of(directory: str) -> str:
    """Return where a run stood, by the metrics of its steps."""
    files = sorted(Path(directory).glob("**/monitor/metrics.jsonl")) if directory else []
    steps: dict[str, int] = {}
    for path in files:
        stage = path.parts[len(Path(directory).parts) : -2]
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            for line in file.read().splitlines():
                with contextlib.suppress(ValueError, TypeError, KeyError):  # one cut short
                    row = json.loads(line)
                    what = {"explorer": "explore step", "trainer": "train step"}[row["role"]]
                    steps[" ".join([*stage, what])] = int(row["step"])
    said = ", ".join(f"{what} {step}" for what, step in sorted(steps.items()))
    return f"after {said}" if said else "before the end of its first step"


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, f"{line}\n".encode())


def _end_as(code: int) -> NoReturn:
    """End with the code of the child, by the signal that it died of."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # that of the child is enough
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
