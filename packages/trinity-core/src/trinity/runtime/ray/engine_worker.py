"""A rollout engine in a process of its own, as its runner's process talks to it.

    RemoteEngine                                EngineWorker
    exchange(1, [+8 runs, 8 requests]) -------> the engine: run_began, submit, ...
             EngineAnswers(8 completions) <---------- as soon as there are any

The news of one session are applied in the order of their numbers. Whoever opens a session ends the
one before: its requests are cancelled and its runs are over, as if their process had said so.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Completion, RunKey
from trinity.errors import EngineBrokenError, ModelError, WorkerLostError, WorkerWaitsError
from trinity.runtime.assembly import make_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from trinity.common.ports import GenerationRequest, WeightSnapshot, WeightVersion
    from trinity.common.ports.trainer import WeightDigest
    from trinity.runtime.ray.weight_transfer import WeightReceiver
    from trinity.runtime.ray.worker import WorkerContext
    from trinity.synchronizer.weights import PackedWeights

logger = logging.getLogger(__name__)

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"  # which Ray sets in a process that it gives some

# Answers that are ready soon after the first travel with it: after half of what it took, but
_LEAST_LINGER_S = 0.002
_LONGEST_LINGER_S = 0.02
_NEWS_S = 60.0  # so long news wait for those before them
_GIVEN_S = 2.0  # so long a call waits for weights: who asks asks again, and holds no thread long
_LIVENESS_S = 60.0  # between two looks whether it is closed
_SCORED_S = 3600.0  # so long a text may stand in line and be scored

RunId = tuple[str, int, int]  # batch, task and run of a RunKey, which is slower to pickle
Runs = tuple[bool, list[RunId]]  # True: these began; False: they ended
# or a numbered request, or (None) that nobody wants its answer any more
News = Runs | tuple[int, "GenerationRequest | None"]


@dataclass(frozen=True, slots=True)
class EngineAnswers:
    """What an exchange brings back.

    Its completions travel as tuples: a frozen dataclass with slots is pickled by Python code, which
    takes four times as long.
    """

    outcomes: Sequence[tuple[int, list[Completion] | ModelError]]  # by the request's number
    version: WeightVersion
    busy_s: float  # of the engine, since the session was opened

    def __reduce__(self) -> tuple[Callable[..., EngineAnswers], tuple[Any, ...]]:
        outcomes = [
            (number, told if isinstance(told, ModelError) else [_parts_of(one) for one in told])
            for number, told in self.outcomes
        ]
        return _answers, (outcomes, self.version, self.busy_s)


@dataclass(eq=False)
class _EngineSession:
    name: str
    busy_before_s: float = 0.0
    num_applied: int = 0
    runs: Counter[RunId] = field(default_factory=Counter)  # that began and did not end
    asked_at: float = 0.0  # the last time
    futures: dict[int, Future[list[Completion]]] = field(default_factory=dict)
    outcomes: list[tuple[int, list[Completion] | ModelError]] = field(default_factory=list)
    is_over: bool = False

    def linger_s(self) -> float:
        took_s = time.monotonic() - self.asked_at
        return min(max(took_s / 2, _LEAST_LINGER_S), _LONGEST_LINGER_S)


class EngineWorker:
    """Holds one engine.

    It serves nobody before it is told that it has the weights that are wanted: a process that takes
    the place of another one has the model's own, and the run may be further.

    SERVING -> LOADING -> SERVING with others, or POISONED: weights did not arrive whole. Then it
    may have a part of them and answers nobody, until all of some version are loaded.

    Args:
        context: of the worker.
        number: of the engine.
    """

    def __init__(self, context: WorkerContext, *, number: int) -> None:
        self._number = number
        self._gpus = os.environ.get(VISIBLE_GPUS)  # before the engine changes it for itself
        self._engine = make_engine(context.config, context.manager)
        self._changed = threading.Condition()
        self._applying = threading.Lock()
        self._session = _EngineSession("", is_over=True)
        self._is_loaded = False  # with whatever it was given last
        self._is_poisoned = False
        self._serves = threading.Event()
        self._living = threading.Condition()  # guards the following
        self._num_liveness_calls, self._is_closed = 0, False

    def open(self, session: str) -> None:
        if session:
            self._wait_for_weights()
        with self._applying:
            old = self._session
            with self._changed:
                old.is_over = True
                self._session = _EngineSession(session, busy_before_s=self._busy_s())
                self._changed.notify_all()
            for future in list(old.futures.values()):
                future.cancel()
            for run in old.runs.elements():
                self._engine.run_ended(_key_of(run))

    def exchange(
        self, session: str, number: int, news: Sequence[News], timeout_s: float
    ) -> EngineAnswers:
        """Tell the engine the news, and return what was answered.

        Args:
            session: that was opened last.
            number: counts the exchanges of the session from 1; 0: there are no news.
            news: in order.
            timeout_s: how long to wait for a first answer.

        Raises:
            WorkerLostError: the session is over: another was opened, or this process is a new one.
        """
        own = self._running(session)
        if number:
            self._apply(own, number, news)
        with self._changed:
            self._changed.wait_for(
                lambda: own.outcomes or own.is_over or not own.futures, timeout_s
            )
            if own.outcomes and own.futures:
                self._changed.wait_for(lambda: own.is_over or not own.futures, own.linger_s())
            self._check(own)
            outcomes, own.outcomes = own.outcomes, []
        return EngineAnswers(outcomes, self._version(), self._busy_s() - own.busy_before_s)

    def score(self, token_ids: Sequence[int], temperature: float) -> list[float]:
        """Return the log-probability of each token but the first.

        Raises:
            ModelError: the engine cannot, or the text cannot be scored.
        """
        self._wait_for_weights()
        scores: list[float]
        try:
            scores = self._engine.score(token_ids, temperature).result(_SCORED_S)
        except EngineBrokenError as error:
            raise self._ended(error) from error
        except TimeoutError:
            raise ModelError(
                f"engine-{self._number} has not scored a text of {len(token_ids)} tokens for "
                f"{_SCORED_S:.0f} s; its log says what it does."
            ) from None
        return scores

    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        self._wait_for_weights()
        return self._version()

    def weight_digest(self, version: int) -> WeightDigest | None:
        """Return the digest of the weights; None: they are not of this version, or it cannot."""
        is_there = self._is_loaded and self._version() == version
        return self._engine.weight_digest() if is_there else None

    def gpus(self) -> str | None:
        """Return which GPUs of its machine it may use, as CUDA's variable says; None: any."""
        return self._gpus

    def is_there(self) -> bool:
        """Return True: who calls is answered once this is built."""
        return True

    def load_weights(self, weights: PackedWeights | None) -> WeightVersion:
        """Replace the weights before the next batch; return their version when it is done.

        Who brought them says by :meth:`liveness` whether they are still those that are wanted.

        Args:
            weights: None: the model's own are those that are wanted.

        Raises:
            ModelError: they are of another model, or the engine is closed.
        """
        if weights is not None:
            self._load(weights.snapshot())
        self._is_loaded, self._is_poisoned = True, False
        return self._version()

    def serve(self) -> None:
        self._serves.set()

    def liveness(self) -> None:
        """Serve; return when this is closed. Who waits for it hears at once if the process is lost.

        There is one such call: who calls again, after the network failed, ends the one before.

        Raises:
            WorkerLostError: it was lost and has no weights yet; or another call came.
        """
        if not self._is_loaded:
            raise self._over()
        self.serve()
        with self._living:
            self._num_liveness_calls += 1
            own = self._num_liveness_calls
            self._living.notify_all()
            while not self._is_closed and own == self._num_liveness_calls:
                self._living.wait(_LIVENESS_S)
            if not self._is_closed:
                raise WorkerLostError(f"engine-{self._number}", cause="another call took its place")

    def close(self) -> None:
        with self._living:
            self._is_closed = True
            self._living.notify_all()
        self._engine.close()
        self.open("")

    def _apply(self, own: _EngineSession, number: int, news: Sequence[News]) -> None:
        """Tell the engine the news once those before were told."""
        with self._changed:
            is_next = self._changed.wait_for(
                lambda: own.is_over or own.num_applied == number - 1, _NEWS_S
            )
        if not is_next:  # those before were lost on the way: all is told again
            raise self._over()
        with self._applying:
            self._check(own)
            for piece in news:
                number_or_began, told = piece
                if isinstance(told, list):
                    self._note_runs(own, told, have_begun=bool(number_or_began))
                elif told is None:
                    self._cancel(own, number_or_began)
                else:
                    self._submit(own, number_or_began, told)
            with self._changed:
                own.num_applied = number
                self._changed.notify_all()

    def _note_runs(self, own: _EngineSession, runs: Sequence[RunId], *, have_begun: bool) -> None:
        tell = self._engine.run_began if have_begun else self._engine.run_ended
        for run in runs:
            own.runs[run] += 1 if have_begun else -1
            if not own.runs[run]:
                del own.runs[run]
            tell(_key_of(run))

    def _submit(self, own: _EngineSession, number: int, request: GenerationRequest) -> None:
        try:
            future = self._engine.submit(request)
        except ModelError as error:
            if isinstance(error, EngineBrokenError):
                raise self._ended(error) from error
            with self._changed:
                own.outcomes.append((number, error))
            return
        with self._changed:
            own.futures[number], own.asked_at = future, time.monotonic()
        future.add_done_callback(partial(self._note, own, number))

    def _cancel(self, own: _EngineSession, number: int) -> None:
        with self._changed:
            future = own.futures.pop(number, None)
            if not own.futures:
                self._changed.notify_all()
        if future is not None:
            future.cancel()

    def _note(self, own: _EngineSession, number: int, future: Future[list[Completion]]) -> None:
        if future.cancelled() or number not in own.futures:
            return
        error = future.exception(0)
        if isinstance(error, EngineBrokenError):
            raise self._ended(error) from error
        if error is not None and not isinstance(error, ModelError):
            what = f"the rollout engine failed: {type(error).__name__}: {error}."
            error = ModelError(f"{what} See the log of the engine.")
        outcome = future.result(0) if error is None else error
        with self._changed:
            own.futures.pop(number, None)
            own.outcomes.append((number, outcome))
            if len(own.outcomes) == 1 or not own.futures:  # between, whoever waits waits on
                self._changed.notify_all()

    def _running(self, name: str) -> _EngineSession:
        own = self._session
        if own.name != name:
            raise self._over()
        return own

    def _check(self, own: _EngineSession) -> None:
        if own.is_over:
            raise self._over()

    def _busy_s(self) -> float:
        return float(self._engine.busy_s)

    def _version(self) -> WeightVersion:
        version: WeightVersion = self._engine.version
        return version

    def _wait_for_weights(self) -> None:
        """Return once it has the weights that are wanted.

        Raises:
            WorkerWaitsError: nobody gave it any.
        """
        if not self._serves.wait(_GIVEN_S):
            if self._is_poisoned:
                raise self._over()
            raise WorkerWaitsError(
                f"engine-{self._number}", cause="it was started anew, without weights"
            )

    # --- weights that come from the trainer's process ---

    def weights(self, step: str, *told: Any) -> Any:
        """Take a step of a sync from process to process; what it gives is its own (Any).

        ``receive`` returns the version once the weights are loaded, between two batches.

        Raises:
            TransferError: the way between the processes broke.
            ModelError: they are of another model, or the engine took others.
        """
        if step in {"sleep", "wake_up"}:
            return getattr(self._engine, step)(*told)
        if step != "receive":
            return getattr(self._weight_receiver, step)(*told)
        try:
            return self._take(self._weight_receiver.receive(*told))
        except Exception:
            self._poison()
            raise

    def _take(self, snapshot: WeightSnapshot) -> WeightVersion:
        version = snapshot.version
        self._load(snapshot)
        if self._engine.version != version:
            raise ModelError(
                f"engine-{self._number} was given the weights of version {version} and says that "
                f"it has version {self._engine.version}: it answers nothing. Its load_weights has "
                f"to set the version."
            )
        del snapshot
        self._weight_receiver.let_go()
        self._is_loaded, self._is_poisoned = True, False
        self.serve()
        return version

    def _load(self, snapshot: WeightSnapshot) -> None:
        try:
            self._engine.load_weights(snapshot)
        except EngineBrokenError as error:
            raise self._ended(error) from error

    def _ended(self, error: EngineBrokenError) -> WorkerLostError:
        """End this process, so that another one takes its place and does what is asked of it."""
        logger.error("engine-%d ends its process: %s", self._number, error)
        end_process()
        return WorkerLostError(f"engine-{self._number}", cause=str(error))

    def _over(self) -> WorkerLostError:
        """Return why a session is over."""
        worker = f"engine-{self._number}"
        if self._is_poisoned:
            return WorkerWaitsError(worker, cause="new weights did not reach it whole")
        return WorkerLostError(worker, cause="it was started anew")

    def _poison(self) -> None:
        self._is_loaded, self._is_poisoned = False, True
        self._serves.clear()
        self.open("")

    @cached_property
    def _weight_receiver(self) -> WeightReceiver:
        from trinity.runtime.ray.weight_transfer import WeightReceiver  # brings torch

        return WeightReceiver()


def end_process() -> None:
    """End this process at once, as if it had died; its log keeps what was said."""
    logging.shutdown()
    os._exit(1)


def run_id(key: RunKey) -> RunId:
    return (key.batch, key.task, key.run)


def _key_of(run: RunId) -> RunKey:
    batch, task, number = run
    return RunKey(batch=batch, task=task, run=number)


_FIELDS = tuple(Completion.__dataclass_fields__)
_parts_of = attrgetter(*_FIELDS)


def _answers(
    outcomes: Sequence[tuple[int, Any]], version: WeightVersion, busy_s: float
) -> EngineAnswers:
    restored = [
        (number, told if isinstance(told, ModelError) else [_completion(parts) for parts in told])
        for number, told in outcomes
    ]
    return EngineAnswers(restored, version, busy_s)


def _completion(parts: Sequence[Any]) -> Completion:  # Any: the types of the fields
    return Completion(**dict(zip(_FIELDS, parts, strict=True)))
