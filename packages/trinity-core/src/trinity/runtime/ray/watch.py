"""Look after Ray's own processes while a run goes on, and say which one is gone.

The driver waits for rooms without a limit, since a step may take hours. When the raylet of its
machine or the head dies, no room answers any more, and Ray does not always tell. So one thread of
the driver looks at both, and whoever waits asks it now and then (:meth:`RayWatch.check`).

======================  =========================================================================
the raylet              its socket refuses, or the head says that this node is dead
the head (the GCS)      its port refuses, or it has not answered for ``limit_s``
a raylet's two agents   the raylet ends with them
======================  =========================================================================

The dashboard, the autoscaler's monitor and the log monitor of a cluster are not looked at: no run
needs them.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import ConfigError, RayLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["RayProcesses", "RayWatch", "check_ray", "is_ray_lost", "watched_ray"]

logger = logging.getLogger(__name__)

LIMIT_VARIABLE = "TRINITY_RAY_LOST_AFTER_S"
LIMIT_S = 45.0  # a head that is busy answers late
LOOK_S = 2.0  # between two looks
CONNECT_S = 5.0
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
    """Looks at Ray's processes in a thread of its own: WELL -> LOST, for good.

    Args:
        processes: what is looked at.
        name: what messages call this Ray.
        limit_s: how long the head may leave a question open.
        remedy: what the user does where it is lost.
    """

    def __init__(
        self, processes: RayProcesses, *, name: str, limit_s: float, remedy: str = ""
    ) -> None:
        self._processes = processes
        self._name = name
        self._limit_s = limit_s
        self._remedy = remedy
        self._answered = time.monotonic()
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="trinity-ray", daemon=True)

    @property
    def is_lost(self) -> bool:
        """Return whether it is known that a process is gone."""
        return bool(self._lost)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def check(self) -> None:
        """Take note of what the thread saw, and of how long it has waited for the head.

        Raises:
            RayLostError: a process of Ray is gone.
        """
        waited_s = time.monotonic() - self._answered
        if not self._lost and waited_s > self._limit_s and not self._ended.is_set():
            self._ask_head(timeout_s=CONNECT_S)  # this process may have been stopped meanwhile
            if time.monotonic() - self._answered > self._limit_s:
                self._lose(f"the head (GCS), which has not answered for {waited_s:.0f} s")
        if self._lost:
            raise RayLostError(f"{self._name} has lost {self._lost}. {self._remedy}")

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
        while not self._ended.wait(LOOK_S) and not self._lost:
            gone = self._processes.gone()
            if gone:
                self._lose(gone)
            else:
                self._ask_head(timeout_s=self._limit_s)

    def _ask_head(self, *, timeout_s: float) -> None:
        try:
            is_dead = self._processes.is_node_dead(timeout_s=timeout_s)
        except Exception as error:  # noqa: BLE001 -- the boundary to Ray's own client
            logger.info("the head of Ray does not answer: %s", " ".join(str(error).split()))
            return
        self._answered = time.monotonic()
        if is_dead:
            self._lose("the raylet of this machine, which the head takes for dead")

    def _lose(self, what: str) -> None:
        self._lost = self._lost or what


_watches: list[RayWatch] = []  # of the one Ray that a process can be connected to


@contextmanager
def watched_ray(
    address: str, *, is_own: bool, processes: Callable[[str], RayProcesses] = RayProcesses
) -> Iterator[None]:
    """Look after the connected Ray within the block.

    Args:
        address: of its head, host:port.
        is_own: whether this run started it.
        processes: gives what is looked at.

    Raises:
        ConfigError: the limit in the environment is no number of seconds.
    """
    name = "the Ray that this run started" if is_own else f"the Ray cluster at {address}"
    again = "Run the same command again: it goes on from the last checkpoint."
    remedy = again if is_own else f"See whether it is alive (ray status), or start it anew. {again}"
    watch = RayWatch(processes(address), name=name, limit_s=_limit_s(), remedy=remedy)
    _watches.append(watch)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
        _watches.remove(watch)


def check_ray(*, looks: bool = False) -> None:
    """Let whoever waits for a room hear that Ray itself is lost; outside the driver, nothing.

    Args:
        looks: True looks at once: a room was lost, perhaps with all others.

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
