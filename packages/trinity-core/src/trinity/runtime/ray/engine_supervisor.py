"""Keep an engine in another process with the weights it should have; wait for a lost one.

driver: load_weights(reference) --> the process that is there; or, where they come from the
        start("receive"), load() --> trainer's process, the steps of that
        a thread for each engine ---> one that takes its place: it serves nobody before

The thread has a call on its way that ends with the process, so that it hears of each loss at once.

lost ---(return_s)---> another is there ---(weights_s)---> it answers
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import ray

from trinity.common.ports import WeightVersion
from trinity.errors import RayLostError, WorkerLostError, WorkerWaitsError
from trinity.runtime.ray.health import LOOK_S
from trinity.runtime.ray.weight_sync import RemoteTensors
from trinity.runtime.ray.worker_handle import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.ports import WeightSnapshot
    from trinity.runtime.ray.weight_sync import RemoteSender
    from trinity.runtime.ray.worker_handle import Pending, WorkerHandle
    from trinity.synchronizer.weights import PackedWeights


logger = logging.getLogger(__name__)

LEAST_LOAD_S = 600.0  # of weights, however short sync_timeout is: it waits for replies under way
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Callee(Protocol):
    """Another worker, as :class:`~trinity.runtime.ray.worker_handle.WorkerHandle` calls it."""

    name: str

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return what the method returns (Any: each its own)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartPolicy:
    """How long a worker is waited for, and how often it may be lost before it did anything."""

    return_s: float = 300.0  # until another process took its place: a large model takes its time
    weights_s: float = 900.0  # then until that was given weights; who brings them gives up earlier
    move_s: float = 60.0  # until another one does what it had to do, if there is another
    num_losses: int = 3

    @classmethod
    def of_runner(cls, *, sync_timeout: float) -> RestartPolicy:
        """Return that with an engine: longer than whoever brings it weights has for a load.

        >>> RestartPolicy.of_runner(sync_timeout=3600).weights_s
        3900.0
        """
        return cls(weights_s=max(LEAST_LOAD_S, sync_timeout) + cls().return_s)


class RestartWaiter:
    """Counts the losses of one worker.

    Args:
        worker: whose process may be lost.
        patience: with it.
    """

    def __init__(self, worker: Callee, *, patience: RestartPolicy | None = None) -> None:
        self._worker = worker
        self._patience = patience or RestartPolicy()
        self._num_losses = 0

    def is_well(self) -> None:
        """Note that the worker did something: earlier losses are forgiven."""
        self._num_losses = 0

    def lost(self, error: WorkerLostError) -> None:
        """Note a loss.

        Raises:
            WorkerLostError: it was one too many.
        """
        if isinstance(error, WorkerWaitsError):
            logger.warning("%s; what it had to do is done once it has them", error)
            return
        self._num_losses += 1
        if error.is_final or self._num_losses > self._patience.num_losses:
            raise error
        logger.warning("%s; it is started again and what it had to do is done again", error)

    def loss_of(self, error: Exception, *, has_others: bool) -> WorkerLostError:
        """Return an error of a call as a loss of the worker.

        Args:
            error: that the call raised.
            has_others: who waits is moved to another worker: one that is gone for good, or is not
                built again, is then waited for as others are.

        Raises:
            Exception: the error, where it is no loss.
        """
        if isinstance(error, WorkerLostError) and not (error.is_final and has_others):
            return error
        if not has_others:
            raise error
        cause = error.cause if isinstance(error, WorkerLostError) else f"it is not built: {error}"
        return WorkerLostError(self._worker.name, cause=cause)

    def first_answer(
        self,
        method: str,
        *args: Any,
        is_wanted: Callable[[], bool] = lambda: True,
        has_others: bool = False,
    ) -> Any:  # Any: what the method returns
        """Return what the worker answers once it is back, and has its weights.

        Args:
            method: of the worker.
            args: of the method.
            is_wanted: whether to go on.
            has_others: as for :meth:`loss_of`.

        Raises:
            WorkerLostError: no process took its place in time, or it was given no weights
                in time, or nobody wants it any more.
            Exception: the method's own, or why the worker is not built.
        """
        began, pause_s, was_there = time.monotonic(), _FIRST_PAUSE_S, False
        while True:
            try:
                return self._worker.call(method, *args)
            except Exception as fault:
                error = self.loss_of(fault, has_others=has_others)
                is_there, now = isinstance(error, WorkerWaitsError), time.monotonic()
                if is_there is not was_there:  # another wait, with a limit of its own
                    began, was_there = now, is_there
                if error.is_final or not is_wanted():
                    raise
                if now + pause_s - began > self._limit_s(is_there=is_there):
                    raise self._too_late(error, is_there=is_there) from fault
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _limit_s(self, *, is_there: bool) -> float:
        return self._patience.weights_s if is_there else self._patience.return_s

    def _too_late(self, error: WorkerLostError, *, is_there: bool) -> WorkerLostError:
        limit_s = self._limit_s(is_there=is_there)
        what = "it was given none" if is_there else "no other process took its place"
        return WorkerLostError(
            self._worker.name, cause=f"{error.cause}, and {what} in {limit_s:.0f} s"
        )


WARN_S = 300.0  # of loading, until it is said
AGAIN_S = 5.0  # after a failure, until weights are brought again


class EngineSupervisor:
    """What a sync method sees of an engine; all of them load at the same time.

    AWAY -> THERE once a process has the weights that are wanted, AWAY again when it is lost.

    Args:
        worker: of the engine.
        patience: with a process that was lost.
        load_s: with one that loads weights; one that takes longer is ended.
    """

    def __init__(
        self,
        worker: WorkerHandle,
        *,
        patience: RestartPolicy | None = None,
        load_s: float = LEAST_LOAD_S,
    ) -> None:
        self._worker = worker
        self._load_s = load_s
        self._patience = patience or RestartPolicy()
        self._returning = RestartWaiter(worker, patience=patience)
        self._changed = threading.Condition()  # guards the following
        # Gives a reference to the weights that are wanted; None: the model's own are.
        self._wanted: Callable[[], ray.ObjectRef[PackedWeights]] | None = None
        self._is_there = self._is_closed = False
        self._num_brought = 0  # how often it was AWAY and is THERE
        self._told = ""  # the failure that was told last
        self._failure: Exception | None = None  # why it does not come back
        self._loading: tuple[Pending | None, int] | None = None  # and num_brought before it
        self._load_began = 0.0
        # Whether there is a process that is brought weights, and since when that is so.
        self._is_new, self._since = False, 0.0
        self._hung_at = 0.0  # one that loaded weights was ended then, as it did not come back

    @property
    def name(self) -> str:
        """Return the name of its worker."""
        return self._worker.name

    def keep(self) -> None:
        """Begin to look after its processes: the first one is there."""
        name = f"{self.name}-weights"
        threading.Thread(target=self._keep, name=name, daemon=True).start()

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Begin to load; :meth:`finish` tells how it ended."""
        ref = _reference_to(snapshot)
        with self._changed:
            self._wanted, self._failure = lambda: ref, None
            self._load_began = time.monotonic()
            pending = self._worker.start("load_weights", ref) if self._is_there else None
            self._loading = pending, self._num_brought
            self._changed.notify_all()

    def expect(self, sender: RemoteSender) -> int | None:
        """Say that what the sender packed is wanted; return which process is there; None: none.

        One that comes later loads it by reference.
        """
        with self._changed:
            self._wanted, self._failure = sender.kept, None
            self._loading = None, self._num_brought
            self._changed.notify_all()
            return self._num_brought if self._is_there else None

    def start(self, step: str, *told: Any) -> Pending:
        """Let the process take a step of a sync from process to process."""
        return self._worker.start("weights", step, *told)

    def leave(self, group: str) -> None:
        """Let the process leave the group, which it may wait in."""
        self._worker.at_once().start("weights", "leave", group)

    def load(self) -> None:
        """Begin to load what the process received; :meth:`finish` tells how it ended."""
        assert self._loading is not None
        self._load_began = time.monotonic()
        self._loading = self._worker.start("load_received"), self._loading[1]

    def miss(self, *, ends: bool) -> None:
        """Note that the process is lost; ``ends``: it is there, and another takes its place."""
        assert self._loading is not None
        if ends:
            self._worker.kill(comes_back=True)
        self._miss(self._loading[1])

    def finish(self) -> bool:
        """Return whether the weights are loaded; False: the process is lost, or not built again.

        One that is there and does not come back from loading, as when a worker below it hangs, is
        ended.

        Raises:
            Exception: the engine refuses them.
        """
        pending, num_before = self._loading or (None, 0)
        if pending is None:
            return self._loading is None
        try:
            self._await(pending)
        except NoAnswerError:
            logger.warning(
                "%s has not loaded its weights in %.0f s (synchronizer.sync_timeout, 600 at "
                "least): it is ended and started again", self.name, self._load_s,
            )  # fmt: skip
            self.miss(ends=True)
            return False
        except WorkerLostError:
            self._miss(num_before)
            return False
        except Exception as error:
            if self._is_built():
                raise
            logger.warning("%s is not built, and took no weights: %s", self.name, error)
            return False
        self._loading = None
        return True

    def _await(self, pending: Pending) -> None:
        warn_s = WARN_S
        while True:
            try:
                pending.result(timeout_s=LOOK_S)
            except NoAnswerError:
                waited_s = time.monotonic() - self._load_began
                if waited_s > self._load_s:
                    raise
                if waited_s > warn_s:
                    warn_s *= 2
                    logger.warning(
                        "%s has been loading weights for %.0f s; it is ended after %.0f s. Its log "
                        "says what it does: replies under way end first, unless "
                        "synchronizer.in_flight is abort or keep.",
                        self.name, waited_s, self._load_s,
                    )  # fmt: skip
            else:
                return

    def is_back(self, *, since: float, wait_s: float) -> bool:
        """Return whether another process is there with the weights, once :meth:`finish` was False.

        Args:
            since: when it began to be waited for, by ``time.monotonic``.
            wait_s: how long this call waits for it, in seconds.

        Raises:
            WorkerLostError: there is none in time.
            Exception: it cannot be built, or refuses the weights.
        """
        assert self._loading is not None
        num_before = self._loading[1]
        with self._changed:
            self._changed.wait_for(
                lambda: self._num_brought != num_before or self._failure is not None, wait_s
            )
            if self._num_brought != num_before:
                self._loading = None
                return True
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise WorkerLostError(self.name, cause="the run is over", is_final=True)
            self._check_wait(since)
        return False

    def _check_wait(self, began: float) -> None:
        """Check that a process is there in time, and then has its weights in time.

        Raises:
            WorkerLostError: it is, or has, not.
        """
        limit_s, what = self._patience.return_s, "none took its place"
        hung = self._hung_at - began > self._load_s  # the next one has no time of its own
        if self._is_new or hung:
            limit_s, what = self._load_s, "another took its place, and has not loaded the weights"
        if hung or time.monotonic() - max(began, self._since) > limit_s:
            cause = f"{what} in {limit_s:.0f} s"
            raise WorkerLostError(self.name, cause=cause, is_final=True)

    def close(self) -> None:
        """Bring no more weights; safe to call twice."""
        with self._changed:
            self._is_closed = True
            self._wanted = self._loading = None
            self._changed.notify_all()

    def _keep(self) -> None:
        while not self._is_closed:
            try:
                self._bring()
                self._stay()
            except Exception as error:  # noqa: BLE001 -- raised where a sync waits for it
                if not isinstance(error, WorkerLostError) or error.is_final:
                    self._note(error)

    def _bring(self) -> None:
        """Give a process that is new the weights that are wanted.

        Raises:
            WorkerLostError: none came.
            Exception: it cannot be built, or refuses them.
        """
        is_brought, version = False, WeightVersion(0)
        while not (is_brought or self._is_closed):
            self._note_place(is_there=False)
            self._returning.first_answer("is_there", is_wanted=lambda: not self._is_closed)
            self._note_place(is_there=True)
            wanted = self._wanted
            version = self._loaded(None if wanted is None else wanted())
            with self._changed:
                is_brought = wanted is self._wanted
                if is_brought:
                    self._is_there, self._failure = True, None
                    self._num_brought += 1
                    self._changed.notify_all()
        if is_brought and self._num_brought > 1:
            logger.warning(
                "%s was lost and is there again, with the weights of version %d", self.name, version
            )

    def _note_place(self, *, is_there: bool) -> None:
        if is_there is not self._is_new:  # each loss has the whole time to be replaced
            self._is_new, self._since = is_there, time.monotonic()

    def _loaded(self, weights: Any) -> WeightVersion:
        """Return the version that a new process has loaded; one that hangs is ended.

        Raises:
            WorkerLostError: it is lost, or was ended.
            Exception: it refuses the weights.
        """
        pending = self._worker.start("load_weights", weights)
        while True:
            try:
                version: WeightVersion = pending.result(timeout_s=LOOK_S)
            except NoAnswerError:
                waited_s = time.monotonic() - self._since
                if self._is_closed or waited_s > self._load_s:
                    break
            else:
                return version
        if not self._is_closed:
            self._hung_at = time.monotonic()
            logger.warning(
                "%s is there again and has not loaded its weights in %.0f s "
                "(synchronizer.sync_timeout, 600 at least): it is ended and started again",
                self.name, waited_s,
            )  # fmt: skip
            self._worker.kill(comes_back=True)
        raise WorkerLostError(self.name, cause="it did not load its weights")

    def _stay(self) -> None:
        """Return when the process is lost, or somebody missed it."""
        staying = self._worker.start("stay")
        while self._is_there and not self._is_closed:
            try:
                staying.result(timeout_s=LOOK_S)
            except TimeoutError:
                continue
            except WorkerLostError:
                self._miss(self._num_brought)
            else:
                self.close()

    def _note(self, error: Exception) -> None:
        """Keep why it does not come back; try again after a while, or with other weights."""
        with self._changed:
            if self._is_closed:
                return
            self._is_there, self._failure = False, error
            self._changed.notify_all()
            if not isinstance(error, RayLostError) and str(error) != self._told:
                self._told = str(error)
                logger.warning("%s gets no weights: %s", self.name, error)
            again = time.monotonic() + AGAIN_S
            while self._failure is error and not self._is_closed and time.monotonic() < again:
                self._changed.wait(LOOK_S)

    def _miss(self, num_brought: int) -> None:
        with self._changed:
            if self._num_brought == num_brought:
                self._is_there = False

    def _is_built(self) -> bool:
        try:
            self._worker.facts()
        except Exception:  # noqa: BLE001 -- what keeps it from being built
            return False
        return True


def _reference_to(snapshot: WeightSnapshot) -> Any:
    tensors = snapshot.tensors
    if isinstance(tensors, RemoteTensors):
        return tensors.ref
    from trinity.synchronizer.weights import PackedWeights  # of a sync method's own tensors

    return ray.put(PackedWeights.of(snapshot))
