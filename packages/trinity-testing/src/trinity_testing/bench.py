"""A process in which checks are run, so that a part that hangs or dies is a finding.

    caller -- number of a case --> bench -- result --> caller

The bench is forked from the caller, so that it has the same plugins; it goes from case to case. A
part that ends the process, or that is not done in time, takes the bench with it: the next part gets
a new one, and the other checks of this part are skipped.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
import weakref
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from typing import TYPE_CHECKING

from trinity_testing.check import BOUND_IT, NOT_ENDED, RAISE, Finding, Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from trinity_testing.check import Case, Result

POLL_S = 0.2  # how often a silent bench is looked after
PR_SET_PDEATHSIG = 1  # Linux: which signal follows the caller's end


@dataclass(frozen=True)
class _Process:
    pid: int
    pipe: Connection
    folder: str  # of its temporary files, which nobody else would remove


class Bench:
    """Runs the cases that it was given.

    Args:
        limit_s: how long each may take; None: as its check says.
    """

    def __init__(self, *, limit_s: float | None = None) -> None:
        self.cases: Sequence[Case] = ()
        self._limit_s = limit_s
        self._process: _Process | None = None
        self._end: weakref.finalize[[_Process], Bench] | None = None
        self._given_up: dict[str, str] = {}  # component -> what the process was lost by

    def run(self, case: Case) -> Result:
        """Return the result of one of the cases."""
        if not _can_fork():
            return case.run_here()
        component = case.component.partition("#")[0]
        if component in self._given_up:
            message = self._given_up[component]
            return replace(case.result(), status=Status.SKIP, message=message)
        result = self._answer(case)
        is_lost = isinstance(result, str)
        if isinstance(result, str):
            result = case.failed(Finding(result, remedy=_remedy_of(result)))
        if is_lost or NOT_ENDED in result.message:
            self._given_up[component] = f"{case.check.id} found: {result.message}"
        return result

    def close(self) -> None:
        """End the process, if there is one."""
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _answer(self, case: Case) -> Result | str:
        """Return the result, or in words why there is none."""
        process = self._sent(case.number)
        limit_s = self._limit_s or case.check.limit_s
        ends = time.monotonic() + limit_s
        try:
            while time.monotonic() < ends:
                if process.pipe.poll(min(POLL_S, limit_s)):
                    result: Result = process.pipe.recv()
                    return result
                ended = _ended(process.pid)
                if ended and not process.pipe.poll(0):
                    self.close()
                    return ended
        except (EOFError, OSError):
            ended = _ended(process.pid, waits=True)
            self.close()
            return ended or "it ended the process"
        except BaseException:
            self.close()
            raise
        self.close()
        return f"{NOT_ENDED} {limit_s:g} s"

    def _sent(self, number: int) -> _Process:
        """Return the process that was told to run the case; a new one where the last has ended."""
        if self._process is not None and _ended(self._process.pid):
            self.close()
        if self._process is None:
            for prepare in {case.check.prepare for case in self.cases}:
                if prepare is not None:
                    prepare()
            self._process = _forked(self.cases)
            self._end = weakref.finalize(self, _kill, self._process)
        self._process.pipe.send(number)
        return self._process


def _can_fork() -> bool:
    """Tell whether a copy of this process can compute: not where it holds an accelerator."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return hasattr(os, "fork") and not (cuda is not None and cuda.is_initialized())


def _forked(cases: Sequence[Case]) -> _Process:
    mine, its = Pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    parent = os.getpid()
    folder = tempfile.mkdtemp(prefix="trinity-bench-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on, where threads run
        pid = os.fork()
    if pid == 0:
        try:
            mine.close()
            tempfile.tempdir = folder
            _serve(its, cases, parent=parent)
        finally:
            os._exit(0)
    its.close()
    return _Process(pid, mine, folder)


def _serve(pipe: Connection, cases: Sequence[Case], *, parent: int) -> None:
    """Run what is asked for until nobody asks."""
    gc.freeze()  # a collection after a check looks through what the check made, not through torch
    os.setpgid(0, 0)  # with what it starts; what a terminal sends goes to the caller
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if "torch" in sys.modules:
        _keep_one_thread()
    while os.getppid() == parent:
        try:
            case = cases[pipe.recv()]
        except (EOFError, OSError):
            return
        try:
            result = case.run_here()
        except BaseException as error:  # noqa: BLE001 - nobody else can have sent it
            result = case.failed(Finding(f"it raised {type(error).__name__}", remedy=RAISE))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pipe.send(result)


def _keep_one_thread() -> None:
    """Let torch compute in one thread, whatever a part asks for.

    OpenMP's threads did not come along: the first operation on a large tensor would wait for them.
    """
    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    vars(torch)["set_num_threads"] = lambda number: None


def _ended(pid: int, *, waits: bool = False) -> str:
    """Return in words how the process ended; an empty string if it runs."""
    try:
        own, status = os.waitpid(pid, 0 if waits else os.WNOHANG)
    except ChildProcessError:  # somebody else asked
        return "it ended the process"
    if own == 0:
        return ""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"it ended the process by {signal.Signals(-code).name}"
    return f"it ended the process with exit code {code}"


def _kill(process: _Process) -> None:
    """End the process and what it started, and remove its temporary files."""
    process.pipe.close()
    for kill, target in ((os.killpg, process.pid), (os.kill, process.pid)):
        try:
            kill(target, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # it has ended
            continue
    _ended(process.pid, waits=True)
    shutil.rmtree(process.folder, ignore_errors=True)


def _remedy_of(words: str) -> str:
    return BOUND_IT if NOT_ENDED in words else RAISE
