"""The processes of Ray itself: look after them during a run, and end those of a broken start.

The driver waits for workers without a limit, since a step may take hours. When the raylet of its
machine or the head dies, no worker answers any more, and Ray does not always tell. So one thread of
the driver looks at both, and whoever waits asks it now and then (:meth:`RayWatch.check`). A call of
Ray may keep its thread whatever limit it was given; where the run has not ended ``GRACE_S`` after a
loss, the watch says the line and ends the process, as Ray itself would do a little later. Where the
run itself leaves Ray (:meth:`RayWatch.leave`), what ends is meant to, and has ``STOP_S`` for it.

======================  =========================================================================
the raylet              its socket refuses, or the head says that this node is dead
the head (the GCS)      its port refuses, or it has not answered for ``limit_s``
a raylet's two agents   the raylet ends with them
======================  =========================================================================

The dashboard, the autoscaler's monitor and the log monitor of a cluster are not looked at: no run
needs them.

A Ray that is stopped while it starts, however often Ctrl-C is pressed meanwhile, has to be ended
here (:func:`end_unfinished`): ``ray.shutdown()`` knows of no process before all of them are up, and
what the raylet has started by then, as its agents, notices only minutes later that it is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from trinity.errors import ConfigError, RayLostError
from trinity.explorer.failure import TRACEBACKS
from trinity.runtime.ray.orphans import MARK, end_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ray._private.node import Node

logger = logging.getLogger(__name__)

LIMIT_VARIABLE = "TRINITY_RAY_LOST_AFTER_S"
LIMIT_S = 45.0  # a head that is busy answers late
LOOK_S = 2.0  # between two looks
CONNECT_S = 5.0
CHANCE_S = 6.0  # for an answer, once the limit is over
GRACE_S = 10.0  # from a loss until the run has ended by itself; Ray ends the process after 25
STOP_S = 60.0  # for Ray to stop, once the run leaves it; a busy machine takes more than 10
_DEAD = 1  # the state of a node, as the head tells it


class RayProcesses:
    """The Ray that this process is connected to, asked from outside.

    Args:
        address: of the head, host:port.
    """

    def __init__(self, address: str) -> None:
        from ray._private.worker import global_worker

        host, _, port = address.rpartition(":")
        self._head = (host.strip("[]"), int(port))
        self._gcs = global_worker.gcs_client
        self._node = global_worker.core_worker.get_current_node_id()
        self._raylet = str(global_worker.node.raylet_socket_name).removeprefix("unix://")

    def gone(self) -> str:
        """Return which of them nobody listens for any more; empty: all are there."""
        if os.path.isabs(self._raylet) and not _listens(socket.AF_UNIX, self._raylet):
            return "the raylet of this machine"
        if not _listens(socket.AF_INET6 if ":" in self._head[0] else socket.AF_INET, self._head):
            return "the head (GCS)"
        return ""

    def is_node_dead(self, *, timeout_s: float) -> bool:
        """Return whether the head takes this machine for dead.

        Raises:
            Exception: it did not answer, as Ray says that.
        """
        node = self._gcs.get_all_node_info(timeout=timeout_s).get(self._node)
        return node is not None and int(node.state) == _DEAD


def _listens(family: int, where: str | tuple[str, int]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(where)
    except (ConnectionError, FileNotFoundError):
        return False
    except OSError:  # it is there, and its queue is full, or this machine is out of something
        return True
    return True


class RayWatch:
    """Looks at Ray's processes in a thread of its own: WELL -> LOST or LEFT, for good.

    Args:
        processes: what is looked at.
        name: what messages call this Ray.
        limit_s: how long the head may leave a question open.
        remedy: what the user does where it is lost.
        end: is given the line where the run does not end by itself.
    """

    def __init__(
        self,
        processes: RayProcesses,
        *,
        name: str,
        limit_s: float,
        remedy: str = "",
        end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._processes = processes
        self._name = name
        self._limit_s = limit_s
        self._remedy = remedy
        self._end = end
        self._answered = time.monotonic()
        self._overdue: float | None = None  # since when the head is late; None: it is not
        self._chance_s = min(CHANCE_S, limit_s)
        self._lost = ""
        self._left = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="trinity-ray", daemon=True)

    @property
    def is_lost(self) -> bool:
        return bool(self._lost)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Take what ends from now on for meant: the run stops Ray, or lets go of it."""
        self._left.set()

    def stop(self) -> None:
        self._ended.set()

    def check(self) -> None:
        """Take note of what the thread saw, and of how long it has waited for the head.

        Raises:
            RayLostError: a process of Ray is gone.
        """
        now = time.monotonic()
        waited_s = now - self._answered
        if waited_s <= self._limit_s or self._ended.is_set():
            self._overdue = None
        elif self._overdue is None:
            self._overdue = now  # this process may have been stopped: the head gets one more chance
        elif now - self._overdue > self._chance_s and not self._lost:
            self._lose(f"the head (GCS), which has not answered for {waited_s:.0f} s")
        if self._lost:
            raise RayLostError(self._line)

    @property
    def _line(self) -> str:
        if not self._lost:
            return f"{self._name} has not been left within {STOP_S:.0f} s, though the run is over."
        return f"{self._name} has lost {self._lost}. {self._remedy}"

    def look(self) -> None:
        """Look at once whether somebody is gone; where all are there, nothing follows.

        Raises:
            RayLostError: a process of Ray is gone.
        """
        gone = self._processes.gone()
        if gone:
            self._lose(gone)
        self.check()

    def _look_on(self) -> None:
        while not (self._ended.wait(LOOK_S) or self._lost or self._left.is_set()):
            gone = self._processes.gone()
            if gone:
                self._lose(gone)
            else:
                self._ask_head()
        if not self._ended.wait(GRACE_S if self._lost else STOP_S):
            self._end(self._line)

    def _ask_head(self) -> None:
        try:
            is_dead = self._processes.is_node_dead(timeout_s=self._limit_s)
        except Exception as error:  # noqa: BLE001 -- the boundary to Ray's own client
            logger.info("the head of Ray does not answer: %s", " ".join(str(error).split()))
            return
        self._answered = time.monotonic()
        if is_dead:
            self._lose("the raylet of this machine, which the head takes for dead")

    def _lose(self, what: str) -> None:
        if not self._left.is_set():
            self._lost = self._lost or what


_watches: list[RayWatch] = []  # of the one Ray that a process can be connected to


def end_process(line: str) -> NoReturn:
    """End this process, whose threads do not come back from Ray, with the line in its log."""
    logging.getLogger(TRACEBACKS).error("the run failed: %s", line)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(1)


@contextmanager
def watched_ray(
    address: str,
    *,
    is_own: bool,
    say: Callable[[str], None],
    end: Callable[[str], None] = end_process,
    processes: Callable[[str], RayProcesses] = RayProcesses,
) -> Iterator[RayWatch]:
    """Look after the connected Ray within the block; tell the watch where you leave it.

    Args:
        address: of its head, host:port.
        is_own: whether this run started it.
        say: is told what is lost, before ``end``.
        end: ends the process with the line, where the block is not left by itself.
        processes: gives what is looked at.

    Raises:
        ConfigError: the limit in the environment is no number of seconds.
    """
    name = "the Ray that this run started" if is_own else f"the Ray cluster at {address}"
    again = "Run the same command again: it goes on from the last checkpoint."
    remedy = again if is_own else f"See whether it is alive (ray status), or start it anew. {again}"

    def reported_and_ended(line: str) -> None:
        say(f"Error: {line}")
        end(line)

    watch = RayWatch(
        processes(address), name=name, limit_s=_limit_s(), remedy=remedy, end=reported_and_ended
    )
    _watches.append(watch)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
        _watches.remove(watch)


def check_ray(*, looks: bool = False) -> None:
    """Let whoever waits for a worker hear that Ray itself is lost; outside the driver, nothing.

    Args:
        looks: True looks at once: a worker was lost, perhaps with all others.

    Raises:
        RayLostError: a process of Ray is gone.
    """
    for watch in _watches:
        if looks:
            watch.look()
        else:
            watch.check()


def is_ray_lost() -> bool:
    """Return whether calls of Ray can no longer be answered."""
    return any(watch.is_lost for watch in _watches)


def _limit_s() -> float:
    text = os.environ.get(LIMIT_VARIABLE, "") or str(LIMIT_S)
    try:
        limit_s = float(text)
    except ValueError:
        limit_s = 0.0
    if not limit_s > 0:
        raise ConfigError(f"{LIMIT_VARIABLE} is {text!r}. Set a number of seconds above 0.")
    return limit_s


@contextmanager
def started_nodes() -> Iterator[list[Node]]:
    """Give the nodes that Ray begins to start within the block."""
    from ray._private.node import Node

    start, nodes = Node.start_head_processes, list[Node]()

    def noted(node: Node) -> None:
        nodes.append(node)
        start(node)

    Node.start_head_processes = noted
    try:
        yield nodes
    finally:
        Node.start_head_processes = start


def stopped_processes(nodes: Sequence[Node]) -> str:
    """Return which process of the nodes was asked to end, and how; empty: none was.

    Lack of memory ends a process by SIGKILL: that is not told here.
    """
    for node in nodes:
        for kind, started in node.all_processes.items():
            code = started[0].process.poll()
            if code in {0, -signal.SIGTERM, -signal.SIGINT}:
                how = f"by {signal.Signals(-code).name}" if code else "from outside"
                return f"its {kind} was stopped {how}"
    return ""


def end_unfinished(nodes: Sequence[Node]) -> None:
    """Disconnect this process, and end all that it started over its Ray; signals wait for nobody.

    Args:
        nodes: of this process; none where it joins another Ray.
    """
    import ray

    with _unheard_signals():
        try:
            ray.shutdown()
            for node in nodes:
                node.kill_all_processes(check_alive=False, allow_graceful=True)
        finally:
            if nodes:  # an agent has nobody above it once the raylet is gone, but the mark
                end_marked(os.environ.get(MARK, ""))


@contextmanager
def _unheard_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM; outside the main thread, where none arrive, nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
