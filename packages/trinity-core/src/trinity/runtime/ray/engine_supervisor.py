"""Keep an engine in another process with the weights it should have; wait for a lost one.

driver: load_weights(reference) --> the process that is there; or, where they come from the
        start("receive") ----------> trainer's process, the steps of that
        a thread for each engine ---> one that takes its place: it serves nobody before

The thread has a call on its way that ends with the process, so that it hears of each loss at once.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import ray

from trinity.common.config.synchronizer import LEAST_LOAD_S
from trinity.common.ports import WeightVersion
from trinity.errors import RayLostError, WorkerLostError
from trinity.runtime.ray.ray_processes import LOOK_S
from trinity.runtime.ray.weight_sync import RemoteTensors
from trinity.runtime.ray.worker_handle import NoAnswerError
from trinity.runtime.supervisor import Recovery, RestartPolicy, WorkerState, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.ports import WeightSnapshot
    from trinity.common.ports.trainer import WeightDigest
    from trinity.runtime.ray.weight_sync import RemoteSender
    from trinity.runtime.ray.worker_handle import Pending, WorkerHandle
    from trinity.synchronizer.weights import PackedWeights

logger = logging.getLogger(__name__)

WARN_S = 300.0  # of loading, until it is said
DIGEST_S = 10.0  # for a few numbers of the weights
AGAIN_S = 5.0  # after a failure, until weights are brought again


class EngineSupervisor:
    """What a sync method sees of an engine; all of them load at the same time.

    STARTING while a process is brought the weights that are wanted, READY once it has them, LOST
    until another takes its place, GONE when this is closed.

    Args:
        worker: of the engine.
        policy: how long a process that was lost is waited for.
        load_s: with one that loads weights; one that takes longer is ended.
    """

    def __init__(
        self,
        worker: WorkerHandle,
        *,
        policy: RestartPolicy | None = None,
        load_s: float = LEAST_LOAD_S,
    ) -> None:
        self._worker = worker
        self._load_s = load_s
        self._policy = policy or RestartPolicy()
        self._recovery = Recovery(worker, policy=policy)
        self._changed = threading.Condition()  # guards the following
        # Gives a reference to the weights that are wanted; None: the model's own are.
        self._wanted: Callable[[], ray.ObjectRef[PackedWeights]] | None = None
        self._status = WorkerStatus(WorkerState.LOST)
        self._num_brought = 0  # how often it became READY
        self._told = ""  # the failure that was told last
        self._failure: Exception | None = None  # why it does not come back
        self._loading: tuple[Pending | None, int] | None = None  # and num_brought before it
        self._load_began = 0.0
        self._hung_at = 0.0  # one that loaded weights was ended then, as it did not come back

    @property
    def name(self) -> str:
        return self._worker.name

    def supervise(self) -> None:
        """Begin to look after its processes: the first one is there."""
        name = f"{self.name}-weights"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Begin to load; :meth:`finish` tells how it ended."""
        ref = _reference_to(snapshot)
        with self._changed:
            self._wanted, self._failure = lambda: ref, None
            self._load_began = time.monotonic()
            pending = self._worker.start("load_weights", ref) if self._is_ready else None
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
            return self._num_brought if self._is_ready else None

    def start(self, step: str, *told: Any) -> Pending:
        """Let the process take a step of a sync from process to process."""
        return self._worker.start("weights", step, *told)

    def check_took(self, step: str, pending: Pending) -> None:
        """Wait until it slept or woke up; it is lost where it hangs, or none can be built."""
        try:
            pending.result(timeout_s=self._load_s)
        except Exception as error:
            hangs = isinstance(error, NoAnswerError)
            if isinstance(error, WorkerLostError) or (not hangs and self._is_built()):
                raise
            cause = f"it did not {step} in time" if hangs else f"it is not built: {error}"
            raise WorkerLostError(self.name, cause=cause) from error

    def leave(self, group: str) -> None:
        """Let the process leave the group, which it may wait in."""
        self._worker.at_once().start("weights", "leave", group)

    def loaded(self) -> None:
        self._loading = None

    def mark_lost(self, *, ends: bool) -> None:
        """Note that the process is lost; ``ends``: it is there, and another takes its place."""
        assert self._loading is not None
        if ends:
            self._worker.kill(comes_back=True)
        self._mark_lost(self._loading[1])

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
            self.mark_lost(ends=True)
            return False
        except WorkerLostError:
            self._mark_lost(num_before)
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

    def weight_digest(self, version: int) -> WeightDigest | None:
        """Return the digest of the weights of this version; None: nobody has it in time."""
        try:
            pending = self._worker.start("weight_digest", version)
            digest: WeightDigest | None = pending.result(timeout_s=DIGEST_S)
        except (WorkerLostError, NoAnswerError):  # whoever takes its place gets the same weights
            return None
        return digest

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
        limit_s, what = self._policy.return_s, "none took its place"
        hung = self._hung_at - began > self._load_s  # the next one has no time of its own
        if self._state is WorkerState.STARTING or hung:
            limit_s, what = self._load_s, "another took its place, and has not loaded the weights"
        if hung or time.monotonic() - max(began, self._status.since) > limit_s:
            cause = f"{what} in {limit_s:.0f} s"
            raise WorkerLostError(self.name, cause=cause, is_final=True)

    def close(self) -> None:
        """Bring no more weights; safe to call twice."""
        with self._changed:
            self._enter(WorkerState.GONE)
            self._wanted = self._loading = None
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._bring()
                self._stay_alive()
            except RayLostError as error:  # the run ends by it, and no engine comes back before
                with self._changed:
                    self._enter(WorkerState.LOST)
                    self._failure = error
                    self._changed.notify_all()
                return
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
            self._enter(WorkerState.LOST)
            self._recovery.wait_until_ready("is_there", is_wanted=lambda: not self._is_closed)
            self._enter(WorkerState.STARTING)
            wanted = self._wanted
            version = self._loaded(None if wanted is None else wanted())
            with self._changed:
                is_brought = wanted is self._wanted
                if is_brought:
                    self._enter(WorkerState.READY)
                    self._failure = None
                    self._num_brought += 1
                    self._changed.notify_all()
        if is_brought and self._num_brought > 1:
            logger.warning(
                "%s was lost and is there again, with the weights of version %d", self.name, version
            )

    @property
    def _state(self) -> WorkerState:
        return self._status.state

    @property
    def _is_ready(self) -> bool:
        return self._state is WorkerState.READY

    @property
    def _is_closed(self) -> bool:
        return self._state is WorkerState.GONE

    def _enter(self, state: WorkerState) -> None:
        with self._changed:
            if not self._is_closed:
                self._status.enter(state)

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
                waited_s = self._status.seconds
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

    def _stay_alive(self) -> None:
        """Return when the process is lost, or is marked so."""
        liveness = self._worker.start("liveness")
        while self._is_ready:
            try:
                liveness.result(timeout_s=LOOK_S)
            except TimeoutError:
                continue
            except WorkerLostError:
                self._mark_lost(self._num_brought)
            else:
                self.close()

    def _note(self, error: Exception) -> None:
        """Keep why it does not come back; try again after a while, or with other weights."""
        with self._changed:
            if self._is_closed:
                return
            self._enter(WorkerState.LOST)
            self._failure = error
            self._changed.notify_all()
            if str(error) != self._told:
                self._told = str(error)
                logger.warning("%s gets no weights: %s", self.name, error)
            again = time.monotonic() + AGAIN_S
            while self._failure is error and not self._is_closed and time.monotonic() < again:
                self._changed.wait(LOOK_S)

    def _mark_lost(self, num_brought: int) -> None:
        with self._changed:
            if self._num_brought == num_brought and self._is_ready:
                self._enter(WorkerState.LOST)

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
