"""Environments in processes, handed from run to run.

pool.lease(game) --> a free process that has this game loaded, else any free one, else a new one
     lease.reset() / .step(action) / .call(...)
lease.close() -----> free again; after an error, a crash or in the midst of a call: killed
end_free_environments() at the end of a run
"""

from __future__ import annotations

import pickle
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.env_process import EnvProcess
from trinity.errors import EnvError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EnvLease", "EnvPool", "end_free_environments", "shared_pool"]

CLOSING_S = 10.0  # how long the environments of a pool may take to close; then they are killed


class EnvPool:
    """Processes of one kind of environment: as many as are leased at the same time.

    There is no upper limit, for a run that waits for a process of another run would hold up the
    engine's batch that the other run waits for.

    Args:
        target, arguments, timeouts: as for ``EnvProcess``.
    """

    def __init__(
        self,
        target: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        timeouts: Mapping[str, float] | None = None,
    ) -> None:
        self.target = target
        self._arguments = dict(arguments or {})
        self._timeouts = dict(timeouts or {})
        self._lock = threading.Lock()
        self._free: list[_Slot] = []  # the one that was given back last is the last
        self._is_closed = False
        self._end = weakref.finalize(self, _end_all, self._free)

    @property
    def num_free(self) -> int:
        """Return how many processes wait for a lease."""
        return len(self._free)

    @property
    def is_closed(self) -> bool:
        """Return whether nothing can be leased any more."""
        return self._is_closed

    def lease(self, game: Any = None) -> EnvLease:
        """Return an environment; where ``game`` is given, with that loaded.

        Args:
            game: what the object's ``load`` takes, of any type that has ``==``; None: nothing is
                loaded.

        Raises:
            EnvError: it cannot be started, or not load this.
            PluginError: a module that it needs is not installed.
        """
        slot = self._free_slot(game)
        lease = EnvLease(self, slot)
        if game is not None and slot.game != game:
            try:
                lease.call("load", game)
            except BaseException:
                lease.close()
                raise
            slot.game = game
        return lease

    def close(self) -> None:
        """End the free processes; leased ones end when they are given back."""
        with self._lock:
            self._is_closed = True
            self._end()

    def end_free(self) -> None:
        """End the free processes; the next lease starts another."""
        with self._lock:
            ended, self._free[:] = list(self._free), []
        _end_all(ended)

    def _free_slot(self, game: Any) -> _Slot:
        with self._lock:
            if self._is_closed:
                raise EnvError(f"the environments of {self.target} are closed.")
            self._free[:] = [slot for slot in self._free if slot.process.is_alive]
            found = [slot for slot in self._free if slot.game == game] or self._free
            if found:
                slot = found[-1]
                self._free.remove(slot)
                return slot
        process = EnvProcess(self.target, arguments=self._arguments, timeouts=self._timeouts)
        return _Slot(process)

    def _give_back(self, slot: _Slot) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(slot)
                return
        slot.process.close()


class EnvLease:
    """An environment for one run.

    Its methods are those of the object in the process. Give it back with ``close``, or with
    ``with``.
    """

    def __init__(self, pool: EnvPool, slot: _Slot) -> None:
        self._pool = pool
        self._slot = slot
        self._is_sound = True
        self._state = threading.Lock()
        self._is_closed = False
        self._is_calling = False
        self._lost = weakref.finalize(self, slot.process.kill)

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what the object's method returns.

        Raises:
            EnvError: it raised, hung or died; the process is not used again.
        """
        with self._state:
            if self._is_closed:
                raise EnvError(f"{self._pool.target}: this environment was given back.")
            self._is_calling = True
        try:
            return self._slot.process.call(method, *args, **options)
        except BaseException:
            self._is_sound = False
            raise
        finally:
            self._is_calling = False

    def reset(self, *args: Any, **options: Any) -> Any:
        """Return what ``reset`` returns."""
        return self.call("reset", *args, **options)

    def step(self, *args: Any, **options: Any) -> Any:
        """Return what ``step`` returns."""
        return self.call("step", *args, **options)

    def close(self) -> None:
        """Give the process back; kill it if it failed or is being asked. Safe to call twice."""
        with self._state:
            is_closed, self._is_closed = self._is_closed, True
            is_sound = self._is_sound and not self._is_calling
        if is_closed:
            return
        self._lost.detach()
        if is_sound and self._slot.process.is_alive:
            self._pool._give_back(self._slot)
        else:
            self._slot.process.kill()

    def __enter__(self) -> EnvLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Slot:
    """A process, and what it has loaded."""

    def __init__(self, process: EnvProcess) -> None:
        self.process = process
        self.game: Any = None


def shared_pool(
    target: str,
    *,
    arguments: Mapping[str, Any] | None = None,
    timeouts: Mapping[str, float] | None = None,
) -> EnvPool:
    """Return the pool of this process with these arguments; its environments end with it."""
    key = pickle.dumps(
        (target, sorted((arguments or {}).items()), sorted((timeouts or {}).items()))
    )
    with _pools_lock:
        if key not in _pools or _pools[key].is_closed:
            _pools[key] = EnvPool(target, arguments=arguments, timeouts=timeouts)
        return _pools[key]


def end_free_environments() -> None:
    """End the processes in shared pools that no run has, as at the end of ``trinity run``."""
    with _pools_lock:
        pools = list(_pools.values())
    for pool in pools:
        pool.end_free()


_pools: dict[bytes, EnvPool] = {}
_pools_lock = threading.Lock()


def _end_all(slots: list[_Slot]) -> None:
    limit = time.monotonic() + CLOSING_S
    while slots:
        process = slots.pop().process
        if time.monotonic() < limit:
            process.close()
        else:
            process.kill()
