"""One worker process of a run: a part is built there, called by name, heard, and logged.

driver, or another worker                    process of this worker
WorkerHandle.call("train_step", ...) ------> Worker.call --> part.train_step(...)
           value, or the error raised <--- WorkerReply(value | error, said)
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import io
import logging
import os
import pickle
import platform
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.secrets import masked, num_pending
from trinity.common.value_checks import bounded, text_of
from trinity.errors import PluginError, TrinityError, WorkerLostError
from trinity.explorer.failure import TRACEBACKS
from trinity.runtime.error_context import marked
from trinity.runtime.gc_paused import gc_paused
from trinity.runtime.record.logs import MaskingFormatter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.extend import PluginManager
    from trinity.runtime.ray.worker_spec import WorkerSpec
    from trinity.runtime.record.rundir import RunDir


def worker_log(path: Path, *, level: str, say: Callable[[dict[str, Any]], None]) -> None:
    """Send what this process logs and prints to a file, for as long as it lives.

    Args:
        path: of the file; what a process before this one wrote is kept.
        level: the least severe records of the ``trinity`` loggers that are written.
        say: gets each record of WARNING and above, as the dict that makes it again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(MaskingFormatter())
    logger = logging.getLogger("trinity")
    logger.setLevel(level.upper())
    logger.propagate = False
    for handler in (file, _Teller(say)):
        logger.addHandler(handler)
    sys.stdout, sys.stderr = _Lines(file, "stdout"), _Lines(file, "stderr")
    faulthandler.enable(_descriptor(file), all_threads=False)  # a crash of native code


def _descriptor(file: logging.FileHandler) -> int:
    assert file.stream is not None
    return file.stream.fileno()


class _Teller(logging.Handler):
    """Hands on each warning as a plain dict."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == TRACEBACKS:
            return
        self._say(
            {
                "name": record.name,
                "levelno": record.levelno,
                "levelname": record.levelname,
                "msg": masked(record.getMessage()),  # by what this process alone may know
            }
        )


class _Lines(io.TextIOBase):
    """A text stream whose lines become log records, whatever the level."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, file: logging.Handler, name: str) -> None:
        self._file = file
        self._name = name
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Write the lines that are whole; the rest waits, and what may go on as a secret."""
        whole = self._rest + text
        end = whole.rfind("\n", 0, len(whole) - num_pending(whole)) + 1
        self._rest = whole[end:]
        for line in masked(whole[:end]).split("\n")[:-1]:
            self._emit(line)
        return len(text)

    def flush(self) -> None:
        if self._rest.endswith("\n") or not num_pending(self._rest):
            rest, self._rest = self._rest, ""
            for line in masked(rest).splitlines():
                self._emit(line)

    def _emit(self, line: str) -> None:
        values = {"name": self._name, "levelno": logging.INFO, "levelname": "INFO", "msg": line}
        self._file.handle(logging.makeLogRecord(values))


def check_plugin_sets(facts: Sequence[WorkerFacts], *, manager: PluginManager) -> None:
    """Do nothing where every worker found the plugins that this process has.

    Raises:
        PluginError: one found others; node, worker and what differs are named.
    """
    own = manager.digest()
    others = [worker for worker in facts if worker.digest != own]
    if not others:
        return
    worker, mine = others[0], plugin_lines(manager)
    names = ", ".join(other.name for other in others)
    only_there = ", ".join(sorted(set(worker.plugins) - set(mine))) or "nothing that is not here"
    only_here = ", ".join(sorted(set(mine) - set(worker.plugins))) or "nothing that is not there"
    remedy = (
        "Install the same versions on both (python -m pip install there), or leave a plugin out "
        "with plugins.disabled."
    )
    if worker.host == platform.node():
        remedy = "If files were changed while the run started, start it again."
    raise PluginError(
        f"the plugins on node {worker.host} (worker {names}) are not those of the driver on "
        f"{platform.node()}: there {only_there}; here {only_here}. {remedy}"
    )


def plugin_lines(manager: PluginManager) -> tuple[str, ...]:
    """Return one line for each plugin in use: distribution, version, hash of its source."""
    return tuple(
        sorted(
            f"{row['distribution'] or 'plugin folder module ' + row['plugin']} "
            f"{(row['version'] or '') + ' '}(source {row['source_hash']})".replace("  ", " ")
            for row in manager.describe()
        )
    )


_ALLOCATIONS_AT_START = gc.get_threshold()[0]
_ALLOCATIONS = 20_000  # between two collections: of the order of what a batch of experiences makes

# What says that something is over, late or elsewhere: its traceback tells nobody anything.
_NO_FAULTS = (StopIteration, TimeoutError, WorkerLostError)

tracebacks = logging.getLogger(TRACEBACKS)


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """What a part learns about the run it stands in."""

    name: str  # of the worker: "trainer", "engine-0"
    config: Config  # of the stage, resolved
    rundir: RunDir
    manager: PluginManager


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFacts:
    """What the driver compares and lists before the first task."""

    name: str
    node: str  # Ray's id of it
    host: str  # its name
    pid: int
    digest: str  # of the plugin set that this process found
    plugins: tuple[str, ...]  # as digests.plugin_lines gives them, to name what differs
    seconds: Mapping[str, float]  # start-up by part: "plugins", "build"
    machine: str = ""  # the same for workers that can share memory; empty: none can


@dataclass(frozen=True, slots=True)
class WithPayload:
    """What ``call_with_payload`` gets from a method: the payload stays in the object store."""

    value: Any  # Any: small, goes to the caller
    payload: Any  # Any: large, goes to whom the caller hands its reference


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReply:
    """How a call ended, and what the worker has to say to the person who watches."""

    value: Any = None  # Any: what the part's method returned
    error: BaseException | None = None
    said: tuple[dict[str, Any], ...] = ()  # log records, WARNING and above, as their dicts


class Worker:
    """Holds one part. ``handle.start_worker`` makes an actor of it.

    Args:
        worker_spec: what this process needs to be like the driver's.
        name: of the worker.
        part: ``"module:Class"``, called as ``Class(context, **arguments)``.
        arguments: of the part.
        waits: whether it is not built here but by :meth:`build`, in the thread that makes its calls
            too: Ray makes the calls of an actor with several groups of threads in none but those.
    """

    def __init__(
        self,
        worker_spec: WorkerSpec,
        name: str,
        part: str,
        arguments: dict[str, Any],
        *,
        waits: bool = False,
    ) -> None:
        self._name = name
        self._said: list[dict[str, Any]] = []
        self._error: BaseException | None = None  # told by every call: a restart runs only this
        self._seconds: dict[str, float] = {}
        self._log_command = f"trinity log {worker_spec.directory} --worker {name}"
        self._make: Callable[[], None] | None = partial(self._build, worker_spec, part, arguments)
        self._building, self._is_built = threading.Lock(), False
        if not waits:
            self.build()

    def build(self) -> None:
        """Build the part, if nobody has; what keeps it from being built is told by every call.

        Who calls aside meanwhile waits.
        """
        with self._building:
            make, self._make = self._make, None
            if make is None:
                return
            try:
                make()
            except BaseException as error:  # noqa: BLE001 -- goes to the caller as a value
                self._error = self._told(error, "__init__")
            self._is_built = True

    def facts(self) -> WorkerReply:
        """Return the :class:`WorkerFacts`, or why the worker could not be built."""
        self.build()
        if self._error is not None:
            return WorkerReply(error=self._error, said=self._heard())
        manager = self._manager
        from trinity.synchronizer.memfd import machine_id  # imports torch

        facts = WorkerFacts(
            name=self._name,
            node=_node_id(),
            host=platform.node(),
            pid=os.getpid(),
            digest=manager.digest(),
            plugins=plugin_lines(manager),
            seconds=self._seconds,
            machine=machine_id(),
        )
        return WorkerReply(value=facts, said=self._heard())

    def heartbeat(self) -> str:
        """Return at once which process this is: it is there."""
        return f"process {os.getpid()} on {platform.node()}"

    def call_built(self, method: str, /, *args: Any, **kwargs: Any) -> WorkerReply:
        """Call a method of the part, if it is built: who asks at once waits for no build."""
        if not self._is_built:
            return WorkerReply(error=WorkerLostError(self._name, cause="it is being built"))
        return self.call(method, *args, **kwargs)

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> WorkerReply:
        """Call a method of the part."""
        self.build()
        try:
            if self._error is not None:
                raise self._error
            value = getattr(self._part, method)(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 -- goes to the caller as a value
            return WorkerReply(error=self._told(error, method), said=self._heard())
        return WorkerReply(value=value, said=self._heard())

    def call_with_payload(
        self, method: str, /, *args: Any, **kwargs: Any
    ) -> tuple[WorkerReply, Any]:
        """Call a method that returns :class:`WithPayload`."""
        reply = self.call(method, *args, **kwargs)
        if reply.error is not None:
            return reply, None
        return WorkerReply(value=reply.value.value, said=reply.said), reply.value.payload

    def _build(self, worker_spec: WorkerSpec, part: str, arguments: dict[str, Any]) -> None:
        began = time.perf_counter()
        context = worker_spec.enter(self._name, say=self._said.append)
        self._manager = context.manager
        entered = time.perf_counter()
        module, _, name = part.partition(":")
        with gc_paused():
            self._part = getattr(importlib.import_module(module), name)(context, **arguments)
        built = time.perf_counter()
        self._seconds = {"plugins": entered - began, "build": built - entered}
        settle()

    def _told(self, error: BaseException, method: str) -> BaseException:
        """Return the error as it leaves this process, whose log keeps the traceback."""
        bounded(error)
        is_told = error is self._error or isinstance(error, _NO_FAULTS)
        if not is_told:
            tracebacks.error("%s.%s failed", self._name, method, exc_info=error)
        return _portable(marked(error, log=self._log_command))

    def _heard(self) -> tuple[dict[str, Any], ...]:
        return tuple(self._said.pop(0) for _ in range(len(self._said)))


def settle() -> None:
    """Let no later collection look at what this process has now, and the young ones come seldom."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])


def unsettle() -> None:
    """Undo that, in a process that goes on with something else."""
    gc.unfreeze()
    gc.set_threshold(_ALLOCATIONS_AT_START, *gc.get_threshold()[1:])


def _portable(error: BaseException) -> BaseException:
    """Return the error as another process can read it, without its traceback."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 -- whatever a user's exception class does
        told = TrinityError(f"{type(error).__name__}: {text_of(error)}")
        told.__dict__.update({k: v for k, v in vars(error).items() if isinstance(v, str)})
        return told
    return error


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())
