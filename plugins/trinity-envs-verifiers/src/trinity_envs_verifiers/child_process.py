"""The process that verifiers runs in: one for each taskset, shared by the runs of this process.

run --ask--> Child --a line of JSON--> stdin  \
    <-Future- reader <--a line------- stdout   > in_child/child.py, where verifiers is
                                      stderr --> the end of it in the message of an error
close_children() at the end of a run
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trinity.common.workflows.leash import LeashedProcess
from trinity.errors import EnvError
from trinity.extend import environment_python

from trinity_envs_verifiers.environment import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity_envs_verifiers.settings import VerifiersSettings

__all__ = ["Child", "child_of", "close_children"]

_LOADS_WITHIN_S = 600.0  # a taskset may read a large dataset
_HEARS_WITHIN_S = 30.0  # a reward may compute for a while
_TAIL_BYTES = 2000
_SCRIPT = Path(__file__).parent / "in_child" / "child.py"
_NOT_ITS_OWN = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}


def child_of(settings: VerifiersSettings) -> Child:
    """Return the process with this taskset; it is started where none runs.

    Raises:
        PluginError: the environment of verifiers is missing.
        EnvError: it cannot be started, or not load the taskset.
    """
    key = json.dumps(settings.message(), sort_keys=True)
    with _lock:
        child = _children.get(key)
        if child is None or not child.is_running:
            if child is not None:
                child.close()
            _children[key] = child = Child(environment_python(ENVIRONMENT))
            child.load(settings)
    child.wait_loaded(settings)
    return child


def close_children() -> None:
    """End all of them."""
    with _lock:
        children = list(_children.values())
        _children.clear()
    for child in children:
        child.close()


_children: dict[str, Child] = {}
_lock = threading.Lock()


class Child:
    """A process that answers messages, many at once; thread-safe.

    Args:
        python: the interpreter of the environment that verifiers is in.

    Raises:
        EnvError: it cannot be started.
    """

    def __init__(self, python: Path) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by close()
        env = {k: v for k, v in os.environ.items() if k not in _NOT_ITS_OWN}
        env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"  # uv is there
        try:
            self._process = LeashedProcess(
                [str(python), "-P", str(_SCRIPT)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
            )
        except OSError as error:
            self._output.close()
            raise EnvError(f"the process of verifiers cannot be started: {error}") from error
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Future[Any]] = {}
        self._loaded: Future[Any] = Future()
        self._is_gone = False
        threading.Thread(target=self._read, name="verifiers", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Return whether it can be asked."""
        return self._process.is_running and not self._is_gone

    def load(self, settings: VerifiersSettings) -> None:
        """Let it load the taskset; :meth:`wait_loaded` says how that went."""
        self._loaded = self.ask("load", settings.message())[1]

    def wait_loaded(self, settings: VerifiersSettings) -> None:
        """Return when the taskset is loaded.

        Raises:
            EnvError: it cannot be.
        """
        try:
            self._loaded.result(_LOADS_WITHIN_S)
        except TimeoutError as error:
            self._process.kill()
            raise EnvError(
                f"verifiers did not load the taskset {settings.taskset!r} in {_LOADS_WITHIN_S:g} s."
            ) from error
        except EnvError as error:  # it stays, so that the next run hears it at once
            raise EnvError(
                f"verifiers cannot load the taskset {settings.taskset!r}: {error}"
            ) from error

    def ask(self, what: str, message: Mapping[str, Any]) -> tuple[int, Future[Any]]:
        """Send a message; return its number, and the future of its answer.

        The future fails with an ``EnvError`` of what went wrong.
        """
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            if self._is_gone:
                future.set_exception(EnvError(self._death()))
                return number, future
            self._asked[number] = future
            line = json.dumps({"id": number, "do": what, **message}) + "\n"
            stdin = self._process.process.stdin
            assert stdin is not None
            with suppress(OSError):  # it is gone, which the reader says
                stdin.write(line.encode())
                stdin.flush()
        return number, future

    def cancel(self, number: int) -> None:
        """End a run.

        A process that does not hear it within 30 s is killed: code of a task blocks its event loop,
        so none of its runs would end.
        """
        try:
            self.ask("cancel", {"run": number})[1].result(_HEARS_WITHIN_S)
        except TimeoutError:
            self._process.kill()
        except EnvError:
            pass  # it is gone, and its runs know that

    def close(self) -> None:
        """End the process and all that it started; who waits for an answer hears so."""
        self._process.end()
        with suppress(OSError):
            for pipe in (self._process.process.stdin,):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        stdout = self._process.process.stdout
        assert stdout is not None
        with stdout:
            for line in stdout:
                self._take(json.loads(line))
        self._process.kill()
        with self._lock:
            self._is_gone = True
            asked, self._asked = list(self._asked.values()), {}
        for future in asked:
            _fail(future, self._death())

    def _take(self, answer: dict[str, Any]) -> None:
        with self._lock:
            future = self._asked.pop(answer["id"], None)
        if future is None:
            return
        if "error" in answer:
            _fail(future, answer["error"])
        else:
            with suppress(InvalidStateError):
                future.set_result(answer["result"])

    def _death(self) -> str:
        code = self._process.process.returncode
        how = f"ended with code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return f"its process {how}; another takes its place. It printed: {self._told()}"

    def _told(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _TAIL_BYTES))
        return self._output.read().decode(errors="replace").strip() or "nothing"


def _fail(future: Future[Any], message: str) -> None:
    with suppress(InvalidStateError):
        future.set_exception(EnvError(message))
