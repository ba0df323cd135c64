"""Run an object in a Python process of its own: an environment that may hang, die or fill memory.

::

    parent                                          child: python -m ... module:Class
    call("step", action) --(method, args)-- stdin --> object.step(action)
      <----------------------(value | error)-- stdout --
      <--------------------- what it prints -- stderr -- kept for the message of an error

Messages are pickles with their length before them. The child ends with its parent, however that
dies. Only the standard library is used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from trinity.common.workflows.env_child import LENGTH, Failure, Value, framed, main
from trinity.errors import BadTaskError, EnvError, PluginError, TrinityError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_TIMEOUTS", "EnvProcess"]

DEFAULT_TIMEOUTS = {"start": 120.0, "load": 120.0, "close": 5.0}  # seconds, by method
DEFAULT_TIMEOUT_S = 60.0  # of any other
KEPT_OUTPUT = 4096  # bytes of stderr
SHOWN_LINES = 5
_CHUNK = 1 << 16

logger = logging.getLogger(__name__)


class EnvProcess:
    """An object in another process; one call at a time, of any of its methods.

    Args:
        target: ``module:Class``, the module importable from ``sys.path``, or ``file.py:Class``.
        arguments: keyword arguments of the class.
        timeouts: seconds by method name, ``start`` for the process itself; see
            ``DEFAULT_TIMEOUTS``.

    Raises:
        PluginError: the class, or a module that it needs, cannot be imported.
        EnvError: the object cannot be made.
    """

    def __init__(
        self,
        target: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        timeouts: Mapping[str, float] | None = None,
    ) -> None:
        self.target = target
        self._timeouts = {**DEFAULT_TIMEOUTS, **(timeouts or {})}
        self._turn = threading.Lock()  # held while a call is being made
        self._child = _Child.started()
        self._end = weakref.finalize(self, self._child.end)
        self._end.atexit = False  # the child ends with this process
        try:
            self._ask("start", (list(sys.path), target, dict(arguments or {})))
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._child.process.pid

    @property
    def is_alive(self) -> bool:
        """Return whether the process can be asked."""
        return self._child.is_running and not self._child.is_ending

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what the method returns; any value that pickle takes.

        Raises:
            EnvError: the method raised, or it did not end in time, or the process died. It is
                killed in the last two cases.
            BadTaskError: the method raised that.
        """
        return self._ask(method, (method, args, options))

    def close(self) -> None:
        """Call the object's ``close``, if it has one, and end the process; safe to call twice.

        While another thread waits for a call, the process is killed: the call ends with an error.
        What ``close`` raises is logged, once; the process ends all the same.
        """
        if self._turn.acquire(blocking=False):
            try:
                if self.is_alive:
                    self._asked("close", ("", (), {}))
            except TrinityError as error:
                _say_once(str(error))
            finally:
                self._turn.release()
        self.kill()

    def kill(self) -> None:
        """End the process at once; safe to call twice, and from any thread."""
        self._child.kill()
        with self._turn:  # a call that was waiting has noticed
            self._end()

    def _ask(self, method: str, message: Any) -> Any:  # Any: what pickle takes
        with self._turn:
            return self._asked(method, message)

    def _asked(self, method: str, message: Any) -> Any:
        limit_s = self._timeouts.get(method, DEFAULT_TIMEOUT_S)
        what = f"{self.target} ({method})"
        if self._child.is_ending:
            raise EnvError(f"{what}: its process was ended.")
        try:
            frame = framed(message)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise EnvError(f"{what}: what it is given cannot travel: {error}") from error
        try:
            answer = self._child.exchange(frame, limit_s=limit_s)
        except TimeoutError:
            self._child.kill()
            raise EnvError(
                f"{what} did not end in {limit_s:g} s; its process was killed, and another takes "
                f"its place.{self._child.told()}"
            ) from None
        except (OSError, EOFError) as error:
            raise EnvError(f"{what}: {self._child.death()}.{self._child.told()}") from error
        except BaseException:  # its answer, if it comes, would be taken for that of the next call
            self._child.kill()
            raise
        if isinstance(answer, Failure):
            raise self._error(answer, what)
        return answer.value

    def _error(self, failure: Failure, what: str) -> EnvError | PluginError:
        if failure.is_import:
            return PluginError(
                f"{what} cannot import what it needs: {failure.text}. Install it for "
                f"{sys.executable}, or correct the name."
            )
        kind = BadTaskError if failure.is_bad_task else EnvError
        return kind(f"{what} raised {failure.text} at {failure.where}.{self._child.told()}")


@dataclass(eq=False, slots=True)
class _Child:
    """The process and its pipes."""

    process: subprocess.Popen[bytes]
    lifeline: int  # never written to: its end tells the child that this process is gone
    out: int
    err: int
    is_ending: bool = False
    output: bytearray = field(default_factory=bytearray)

    @classmethod
    def started(cls) -> _Child:
        theirs, ours = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "trinity.common.workflows.env_process", str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs,),
                bufsize=0,
                start_new_session=True,  # Ctrl-C is this process's; a kill takes what it started
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, ours, out=_number(process.stdout), err=_number(process.stderr))

    @property
    def is_running(self) -> bool:
        """Return whether the process has not ended; it is not waited for."""
        if self.process.returncode is not None:
            return False
        with contextlib.suppress(ChildProcessError):
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, options) is None
        return False

    def exchange(self, frame: bytes, *, limit_s: float) -> Value | Failure:
        """Return the answer to a message.

        Raises:
            TimeoutError: it did not come in time.
            EOFError, OSError: the process died.
        """
        self.output.clear()
        deadline = time.monotonic() + limit_s
        self._send(frame, deadline)
        answer: Value | Failure = pickle.loads(self._received(deadline))
        return answer

    def kill(self) -> None:
        """End the process and all that it started."""
        self.is_ending = True
        if self.process.returncode is None:  # until it is waited for, the number is its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it and free what it held here; called once."""
        self.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        os.close(self.lifeline)

    def death(self) -> str:
        """Return how the process ended, in words."""
        is_killed = self.is_ending
        self.kill()
        code = self.process.wait()
        if is_killed:
            return "its process was ended while it was asked"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"its process {how}; another takes its place"

    def told(self) -> str:
        """Return the last lines that it printed, as the end of a message."""
        while _is_ready(self.process.stderr) and (more := os.read(self.err, _CHUNK)):
            self._keep(more)
        lines = bytes(self.output).decode(errors="replace").strip().splitlines()
        return f" It printed: {' | '.join(lines[-SHOWN_LINES:])}" if lines else ""

    def _send(self, frame: bytes, deadline: float) -> None:
        view, descriptor = memoryview(frame), _number(self.process.stdin)
        if len(frame) <= select.PIPE_BUF:  # it reads before it answers: there is room
            os.write(descriptor, view)
            return
        os.set_blocking(descriptor, False)
        while view:
            self._wait({descriptor: select.POLLOUT}, deadline)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(descriptor, view) :]
        os.set_blocking(descriptor, True)

    def _received(self, deadline: float) -> bytes:
        data = bytearray()
        wanted = LENGTH.size
        while len(data) < wanted:
            self._wait({self.out: select.POLLIN}, deadline)
            more = os.read(self.out, max(_CHUNK, wanted - len(data)))
            if not more:
                raise EOFError
            data += more
            if wanted == LENGTH.size and len(data) >= wanted:
                wanted += LENGTH.unpack_from(data)[0]
        return bytes(data[LENGTH.size :])

    def _wait(self, wanted: Mapping[int, int], deadline: float) -> None:
        """Return when a descriptor is ready; keep what the child prints meanwhile."""
        poll = select.poll()
        for descriptor, events in {**wanted, self.err: select.POLLIN}.items():
            poll.register(descriptor, events)
        while True:
            left = deadline - time.monotonic()
            ready = dict(poll.poll(max(0.0, left) * 1000))
            if ready.pop(self.err, 0):
                printed = os.read(self.err, _CHUNK)
                self._keep(printed)
                if not printed:
                    poll.unregister(self.err)
            if ready:
                return
            if left <= 0:
                raise TimeoutError

    def _keep(self, printed: bytes) -> None:
        self.output += printed
        del self.output[:-KEPT_OUTPUT]


@cache
def _say_once(text: str) -> None:
    logger.warning("%s No rollout is lost; its resources may stay open.", text)


def _number(pipe: IO[bytes] | None) -> int:
    assert pipe is not None, "all three were asked for"
    return pipe.fileno()


def _is_ready(pipe: IO[bytes] | None) -> bool:
    return pipe is not None and not pipe.closed and bool(select.select([pipe], [], [], 0)[0])


if __name__ == "__main__":
    main(int(sys.argv[1]))
