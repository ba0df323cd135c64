"""How one process of a run calls a worker in another."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
)

from trinity.errors import TrinityError, WorkerLostError
from trinity.runtime.ray.ray_processes import LOOK_S, check_ray
from trinity.runtime.ray.worker import Worker, WorkerFacts, WorkerReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trinity.runtime.ray.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)

# Groups of one thread each that answer while the others work: whether it is there; what takes long.
_HEARTBEATS, _ASIDE = "heartbeats", "aside"
READ_S = 5.0  # for a heartbeat that is there
FIRST_PATIENCE_S = 600.0  # with an answer, until it is said that there is none; later less often


class NoAnswerError(TimeoutError):
    """There is no answer yet; a ``TimeoutError`` that the method raised is an answer."""


class Pending:
    """A call on its way."""

    def __init__(
        self, worker: WorkerHandle, reply: ray.ObjectRef[WorkerReply], *, method: str
    ) -> None:
        self._handle = worker
        self._worker = worker.name
        self._reply = reply
        self._method = method

    @property
    def ref(self) -> ray.ObjectRef[WorkerReply]:
        return self._reply

    def result(self, *, timeout_s: float | None = None) -> Any:
        """Return what the method returned.

        Raises:
            WorkerLostError: the process ended.
            RayLostError: a process of Ray itself did.
            NoAnswerError: there is none yet.
            Exception: what the method raised.
        """
        try:
            reply = self._awaited(timeout_s)
        except GetTimeoutError as error:
            check_ray()
            raise NoAnswerError(f"{self._worker} did not answer in {timeout_s} s") from error
        except (
            RayTaskError
        ) as error:  # before the worker was asked: an argument cannot be read there
            raise TrinityError(
                f"a call of {self._worker} did not reach it: {str(error).splitlines()[-1]}"
            ) from None
        except RayError as error:
            check_ray(looks=True)
            _log_loss(self._worker, error)
            is_back_soon = isinstance(error, RayActorError) and not isinstance(
                error, ActorDiedError
            )
            cause = self._handle.lost.cause if self._handle.lost else _cause(error)
            raise WorkerLostError(self._worker, cause=cause, is_final=not is_back_soon) from None
        _lost.pop(self._worker, None)
        for record in reply.said:  # said here as if it had happened here, so it travels upwards
            logging.getLogger(record["name"]).handle(logging.makeLogRecord(record))
        if reply.error is not None:
            if isinstance(reply.error, WorkerLostError):  # as that worker met it
                check_ray(looks=True)
            raise reply.error
        return reply.value

    def _awaited(self, timeout_s: float | None) -> WorkerReply:
        """Return the reply; say now and then that there is none yet, and of whom."""
        _check_connected(self._worker)
        if timeout_s is not None:
            in_time: WorkerReply = ray.get(self._reply, timeout=timeout_s)
            return in_time
        began, patience_s = time.monotonic(), self._handle.patience_s
        while True:
            try:
                reply: WorkerReply = ray.get(self._reply, timeout=LOOK_S)
            except GetTimeoutError:
                check_ray()
                _check_connected(self._worker)
                if time.monotonic() - began < patience_s:
                    continue
                logger.warning(
                    "%s has not answered %s for %.0f s: it is busy, or stopped. What it does "
                    "stands in its log, logs/%s.log in the run directory.",
                    self._worker, self._method, time.monotonic() - began, self._worker,
                )  # fmt: skip
                patience_s *= 3
            else:
                return reply


class WorkerHandle:
    """Calls one worker; travels between processes.

    Attributes:
        patience_s: with an answer, until it is said that there is none.
        comes_back: whether another process takes the place of one that ends.
        lost: why its process was ended for good, as nobody answered there; None: it was not.
    """

    def __init__(self, actor: Any, name: str, *, group: str | None = None) -> None:
        self._group = group  # of threads, to which its calls are given; None: the common ones
        self.actor = actor
        self.name = name
        self.patience_s = FIRST_PATIENCE_S
        self.comes_back = False
        self.lost: WorkerLostError | None = None

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return what the part's method returns; errors are those of :meth:`Pending.result`."""
        return self.start(method, *args, **kwargs).result()

    def start(self, method: str, /, *args: Any, **kwargs: Any) -> Pending:
        """Call the method without waiting; object references among the arguments are resolved."""
        _check_connected(self.name)
        call = self.actor.call_built if self._group == _HEARTBEATS else self.actor.call
        if self._group is not None:
            call = call.options(concurrency_group=self._group)
        return Pending(self, call.remote(method, *args, **kwargs), method=method)

    def call_with_payload(
        self, method: str, /, *args: Any, **kwargs: Any
    ) -> tuple[Any, ray.ObjectRef[Any]]:
        """Return the small value and a reference to the large one, which is not fetched."""
        pending, payload = self.start_with_payload(method, *args, **kwargs)
        return pending.result(), payload

    def start_with_payload(
        self, method: str, /, *args: Any, **kwargs: Any
    ) -> tuple[Pending, ray.ObjectRef[Any]]:
        """Begin such a call without waiting."""
        _check_connected(self.name)
        group = {"concurrency_group": self._group} if self._group is not None else {}
        options = self.actor.call_with_payload.options(num_returns=2, **group)
        reply, payload = options.remote(method, *args, **kwargs)
        return Pending(self, reply, method=method), payload

    def aside(self) -> WorkerHandle:
        """Return a handle whose calls a thread beside the worker's own makes, one after the other.

        So they begin at once, whatever the worker does, and may take long: it is another thread
        than that of :meth:`heartbeat`.
        """
        return WorkerHandle(self.actor, self.name, group=_ASIDE)

    def at_once(self) -> WorkerHandle:
        """Return a handle whose calls the thread of :meth:`heartbeat` makes; they have to be quick.

        A worker that is being built answers them with a ``WorkerLostError``.
        """
        return WorkerHandle(self.actor, self.name, group=_HEARTBEATS)

    def heartbeat(self) -> Callable[[], str | None]:
        """Ask a worker whether it is there, whatever it does.

        Returns:
            What tells which process answered; "": it was lost; None: nobody has answered yet.

        Raises:
            WorkerLostError: it cannot be asked.
        """
        _check_connected(self.name)
        try:
            asked = self.actor.heartbeat.options(concurrency_group=_HEARTBEATS).remote()
        except RayError as error:
            raise WorkerLostError(self.name, cause=" ".join(str(error).split())) from None
        return partial(_answer, asked)

    def facts(self) -> WorkerFacts:
        """Return the facts, once the worker is built; raises why it could not be."""
        facts: WorkerFacts = self.ask_facts().result()
        return facts

    def ask_facts(self) -> Pending:
        return Pending(self, self.actor.facts.remote(), method="facts")

    def kill(self, *, comes_back: bool = False) -> None:
        """End the process at once; ``comes_back``: as if it had died: another takes its place."""
        if ray.is_initialized():
            ray.kill(self.actor, no_restart=not comes_back)


def start_worker(  # noqa: PLR0913 -- what a process may differ in
    worker_spec: WorkerSpec,
    name: str,
    part: str,
    *,
    num_threads: int = 1,
    num_gpus: float = 0.0,
    max_restarts: int = 0,
    env_vars: dict[str, str] | None = None,
    place: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> WorkerHandle:
    """Start a worker; it is built in its process while this returns.

    It answers :meth:`WorkerHandle.heartbeat` and what is asked aside, each in a thread of its own.
    With one thread for all the rest, this one builds it too; it is not the process's main thread,
    to which Ray then gives no calls.

    Args:
        worker_spec: of the run.
        name: unique in the run.
        part: ``"module:Class"`` of what it holds.
        num_threads: how many calls it may answer at once; with more than one, in any order.
        num_gpus: of the node.
        max_restarts: how often a process that dies is started again, built anew.
        env_vars: beside the run's.
        place: Ray's options that say where it stands; None: anywhere.
        arguments: of the part.
    """
    remote: Any = ray.remote  # half typed
    worker = remote(concurrency_groups={_HEARTBEATS: 1, _ASIDE: 1})(Worker)
    waits = num_threads == 1
    actor = worker.options(
        name=name,
        namespace=worker_spec.namespace,
        num_cpus=0,  # its bundle has reserved one, where others may ask for the machine
        num_gpus=num_gpus,
        max_concurrency=num_threads,
        max_restarts=max_restarts,
        runtime_env=worker_spec.runtime_env(env_vars or {}),
        **(place or {}),
    )
    handle = WorkerHandle(actor.remote(worker_spec, name, part, arguments, waits=waits), name)
    if waits:
        handle.actor.build.remote()
    handle.comes_back = max_restarts > 0
    return handle


_lost: dict[str, set[str]] = {}  # workers that have not answered since, and the errors logged


def _log_loss(worker: str, error: RayError) -> None:
    """Log Ray's words once, not at each call of a worker that is started again."""
    logged = _lost.setdefault(worker, set())
    if type(error).__name__ not in logged:
        logged.add(type(error).__name__)
        logger.info("%s was lost: %s", worker, error)


def _answer(asked: ray.ObjectRef[str]) -> str | None:
    """Return which process answered a heartbeat; "": it was lost; None: nobody has answered."""
    try:
        if not ray.wait([asked], timeout=0)[0]:
            return None
        where: str = ray.get(asked, timeout=READ_S)
    except RayError:  # it is lost, or started again: who calls it hears so
        return ""
    return where


def _check_connected(worker: str) -> None:
    """Call no Ray that was left: it would start another one for that call.

    Raises:
        WorkerLostError: this process is connected to none.
    """
    if not ray.is_initialized():
        raise WorkerLostError(worker, cause="this process has left Ray", is_final=True)


def _cause(error: RayError) -> str:
    """Return in a few words why a process is gone; the log has Ray's own."""
    if isinstance(error, OutOfMemoryError) or "memory monitor" in str(error):
        return "Ray ended it because the machine runs out of memory"
    if "runtime_env" in str(error) or "RuntimeEnv" in type(error).__name__:
        return " ".join(str(error).split())
    return "it ended or was killed"


def find_worker(namespace: str, name: str) -> WorkerHandle:
    """Return the worker of that name in a run's namespace.

    Raises:
        WorkerLostError: there is none.
    """
    try:
        return WorkerHandle(ray.get_actor(name, namespace=namespace), name)
    except ValueError:
        raise WorkerLostError(name, cause="there is no such actor") from None
