"""An engine in another process, as the rollouts of this one use it.

    run threads --submit, run_began, run_ended--> news --exchange--> EngineWorker
         ^                                                               |
         +------------- futures <------------- EngineAnswers <-----------------+

The news of a wave of runs travel as one message: they leave once every active run has asked for
something, since nothing more can come then, or a moment after the first of them, which is longer
for first requests: an engine lets them wait for each other. When the engine's process dies,
whatever has no answer is sent again to the one that takes its place.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trinity.common.generation import PendingReply
from trinity.common.ports import RolloutEngine
from trinity.engines.lockstep import is_first
from trinity.errors import ModelError, WorkerLostError
from trinity.runtime.ray.engine_worker import run_id
from trinity.runtime.supervisor import Recovery
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from trinity.common.ports import (
        Completion,
        GenerationRequest,
        RunKey,
        WeightSnapshot,
        WeightVersion,
    )
    from trinity.runtime.ray.engine_worker import EngineAnswers, News, RunId
    from trinity.runtime.ray.worker_handle import WorkerHandle
    from trinity.runtime.supervisor import RestartPolicy

logger = logging.getLogger(__name__)

_LINGER_S = 0.01  # longer than runs that start together take to ask
_LINGER_ALONE_S = 0.002  # where no request waits for another run's
_LINGER_OF_FIRST_S = 0.1  # other runs still judge what they got; below an engine's patience
_POLL_S = 20.0
_CLOSE_TIMEOUT_S = 5.0
_NUM_SCORERS = (
    4  # texts on their way at a time: fewer than the calls that the worker answers at once
)


@dataclass(frozen=True, slots=True)
class _SentRequest:
    request: GenerationRequest
    future: PendingReply[list[Completion]]


@dataclass(frozen=True, slots=True)
class _Exchange:
    session: str
    number: int  # 0: no news
    news: list[News]
    timeout_s: float


class RemoteEngine(RolloutEngine):
    """A rollout engine over the handle of its worker; only one process may hold one of it.

    Two threads speak with the worker: one waits for answers, the other sends what comes meanwhile.

    Args:
        worker: the engine's.
        policy: how long a process that was lost is waited for.
        in_lockstep: whether the engine lets first requests wait for each other.
        has_others: whether others make the runs of an engine that is lost: requests wait for that.
    """

    def __init__(
        self,
        worker: WorkerHandle,
        *,
        policy: RestartPolicy | None = None,
        in_lockstep: bool = True,
        has_others: bool = False,
    ) -> None:
        self._worker = worker
        self._in_lockstep, self._has_others = in_lockstep, has_others
        self._recovery = Recovery(worker, policy=policy)
        self._changed = threading.Condition()
        self._news: list[News] = []
        self._oldest_news = 0.0  # since when they wait
        self._asked: dict[int, _SentRequest] = {}  # without an answer
        self._num_asked = 0
        self._runs: Counter[RunId] = Counter()  # that began and did not end
        self._session = ""
        self._is_open = self._is_opening = self._is_polling = self._is_closed = False
        self._num_sent = 0
        self._away_since: float | None = None  # None: nobody has missed the engine
        self._busy_before_s = self._busy_s = 0.0  # in earlier sessions; in this one
        self._version: WeightVersion | None = None
        self._threads: list[threading.Thread] = []
        self._scorers: ThreadPoolExecutor | None = None  # None: nothing was scored yet

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        if self._version is None:
            version: WeightVersion = self._recovery.wait_until_ready("version")
            self._version = version
        return self._version

    @property
    def busy_s(self) -> float:
        return self._busy_before_s + self._busy_s

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        with self._changed:
            if self._is_closed:
                raise closed()
            self._num_asked += 1
            future: PendingReply[list[Completion]] = PendingReply(
                on_cancel=partial(self._give_up, self._num_asked)
            )
            self._asked[self._num_asked] = _SentRequest(request, future)
            self._add((self._num_asked, request))
            self._start_threads()
        return future

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        with self._changed:
            if self._is_closed:
                raise closed()
            if self._scorers is None:
                self._scorers = ThreadPoolExecutor(_NUM_SCORERS, f"{self._worker.name}-score")
        return self._scorers.submit(self._score, tuple(token_ids), temperature)

    def away_s(self) -> float:
        """Return for how long the engine's process is lost; 0: it is there, or nobody knows."""
        with self._changed:
            since, is_speaking = self._away_since, bool(self._asked)
        if since is None:
            return 0.0
        if not is_speaking:  # nobody else would notice that it is back
            with suppress(Exception):  # lost, or what keeps it from being built
                self._worker.call("version")
                self._away_since = None
                return 0.0
        return time.monotonic() - since

    @property
    def num_open(self) -> int:
        return len(self._asked)

    def run_began(self, key: RunKey) -> None:
        with self._changed:
            self._runs[run_id(key)] += 1
            self._add((True, [run_id(key)]))

    def run_ended(self, key: RunKey) -> None:
        with self._changed:
            self._runs -= Counter([run_id(key)])  # without those that are 0
            self._add((False, [run_id(key)]))

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        self._worker.call("load_weights", PackedWeights.of(snapshot))
        self._version = snapshot.version

    def forget(self) -> None:
        """Begin anew: nobody waits for an answer any more, and the version may be another."""
        with self._changed:
            self._fail_all(ModelError("the run was left behind: another explorer took over."))
            self._news.clear()
            self._runs.clear()
            self._lose_session()
            self._version = None

    def expect_new_weights(self) -> None:
        """Ask for the version anew where no answer tells it."""
        self._version = None

    def close(self) -> None:
        """End the threads; what waits fails with ``ModelError``. The engine itself goes on."""
        with self._changed:
            self._is_closed = True
            self._fail_all(closed())
            has_spoken = self._is_open
            self._changed.notify_all()
        if has_spoken:
            with suppress(WorkerLostError):
                self._worker.call("open", "")  # whoever waits for answers there returns
        if self._scorers is not None:
            self._scorers.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            thread.join(_CLOSE_TIMEOUT_S)

    def _score(self, token_ids: tuple[int, ...], temperature: float) -> list[float]:
        try:
            answer: list[float] = self._recovery.wait_until_ready(
                "score", token_ids, temperature, is_wanted=self._is_wanted
            )
        except WorkerLostError as error:
            raise given_up(error) from error
        return answer

    def _is_wanted(self) -> bool:
        return not self._is_closed

    def _give_up(self, number: int) -> None:
        """Take back a request that has not left, else tell the engine that nobody wants it."""
        with self._changed:
            if self._asked.pop(number, None) is None:
                return  # it has its answer
            num_news = len(self._news)
            self._news = [piece for piece in self._news if piece[0] != number or _is_runs(piece)]
            if len(self._news) == num_news and self._is_open:
                self._add((number, None))
            self._changed.notify_all()

    def _add(self, piece: News) -> None:
        """Queue a piece of news; wake a thread for the first, and when nothing more can come."""
        if is_oldest := not self._news:
            self._oldest_news = time.monotonic()
        # Threads that know of no request wait without a limit, whatever runs began.
        is_first = not _is_runs(piece) and all(map(_is_runs, self._news))
        told = piece[1]
        last = self._news[-1] if self._news else None
        if isinstance(told, list) and last and isinstance(last[1], list) and last[0] is piece[0]:
            last[1].extend(told)
        else:
            self._news.append(piece)
        may_wait = self._in_lockstep and _is_early(piece)
        if is_oldest or is_first or not may_wait or self._have_all_asked():
            self._changed.notify()

    def _start_threads(self) -> None:
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._speak, name=f"{self._worker.name}-{n}", daemon=True)
                for n in (1, 2)
            ]
            for thread in self._threads:
                thread.start()

    def _speak(self) -> None:
        while (job := self._next_job()) is not None:
            job()

    def _next_job(self) -> Callable[[], None] | None:
        """Return what to say next, waiting until there is something; None: this is closed."""
        with self._changed:
            while not self._is_closed:
                delay = self._delay()
                if delay != 0.0:
                    self._changed.wait(delay)
                elif self._is_open:
                    return partial(self._say, self._next_exchange())
                else:
                    self._is_opening = True
                    return self._open
            return None

    def _delay(self) -> float | None:
        """Return in how many seconds to speak; None: not before something changes."""
        if self._is_opening or not (self._asked or self._tells_of_one_given_up()):
            return None  # that runs begin and end can wait until somebody asks
        if not self._is_open or (self._news and self._have_all_asked()):
            return 0.0
        if self._news:
            return max(0.0, self._oldest_news + self._linger_s() - time.monotonic())
        return None if self._is_polling else 0.0

    def _tells_of_one_given_up(self) -> bool:
        return self._is_open and any(told is None for _, told in self._news)

    def _linger_s(self) -> float:
        if not self._in_lockstep:
            return _LINGER_ALONE_S
        are_first = all(map(_is_early, self._news))
        return _LINGER_OF_FIRST_S if self._runs and are_first else _LINGER_S

    def _have_all_asked(self) -> bool:
        if not self._runs or len(self._asked) < len(self._runs):
            return False
        return self._runs.keys() <= {run_id(asked.request.key) for asked in self._asked.values()}

    def _next_exchange(self) -> _Exchange:
        news, self._news = self._news, []
        self._num_sent += bool(news)
        timeout_s = 0.0 if self._is_polling else _POLL_S
        self._is_polling = True
        return _Exchange(self._session, self._num_sent if news else 0, news, timeout_s)

    def _say(self, exchange: _Exchange) -> None:
        try:
            answers: EngineAnswers = self._worker.call(
                "exchange", exchange.session, exchange.number, exchange.news, exchange.timeout_s
            )
        except Exception as error:  # noqa: BLE001 -- the boundary to another process
            self._note_failure(exchange, error)
            return
        with self._changed:
            if exchange.session != self._session:
                return
            if exchange.timeout_s:
                self._is_polling = False
            self._busy_s, self._version = answers.busy_s, answers.version
            asked = self._asked  # without those that were given up meanwhile
            answered = [(asked.pop(n), told) for n, told in answers.outcomes if n in asked]
        if answered:
            self._recovery.note_answer()
        elif exchange.timeout_s:
            self._report_unresponsive()
        for one, told in answered:
            with suppress(InvalidStateError):  # it was given up a moment ago
                if isinstance(told, ModelError):
                    one.future.set_exception(told)
                else:
                    one.future.set_result(told)

    def _report_unresponsive(self) -> None:
        logger.info(
            "%s: no answer for %.0f s; %d requests wait; %d runs are active; %d news are held back",
            self._worker.name, _POLL_S, len(self._asked), len(self._runs), len(self._news),
        )  # fmt: skip

    def _note_failure(self, exchange: _Exchange, error: Exception) -> None:
        with self._changed:
            if exchange.session != self._session or self._is_closed:
                return  # the other thread met it first, or this was closed
            self._lose_session()
            try:
                loss = self._recovery.loss_of(error, has_others=self._has_others)
                self._away_since = self._away_since or time.monotonic()
                self._recovery.note_loss(loss)
            except Exception as last:  # noqa: BLE001 -- the runs' failure, whatever it was
                self._fail_all(given_up(last))
            self._changed.notify_all()

    def _open(self) -> None:
        """Begin a session, as often as it takes, and queue all that has no answer."""
        session, failure = uuid.uuid4().hex, None
        self._away_since = self._away_since or time.monotonic()  # until it answers
        try:
            self._recovery.wait_until_ready(
                "open", session, is_wanted=self._is_wanted, has_others=self._has_others
            )
        except Exception as error:  # noqa: BLE001 -- also why the worker cannot be built
            failure = given_up(error)
        with self._changed:
            self._is_opening = False
            if failure is not None:
                self._fail_all(failure)
            else:
                self._session, self._is_open, self._num_sent = session, True, 0
                self._away_since = None
                self._news = [(True, list(self._runs.elements()))] if self._runs else []
                self._news += [(number, asked.request) for number, asked in self._asked.items()]
                self._oldest_news = time.monotonic()
            self._changed.notify_all()

    def _lose_session(self) -> None:
        self._session, self._is_open, self._is_polling = "", False, False
        self._busy_before_s, self._busy_s = self.busy_s, 0.0

    def _fail_all(self, error: ModelError) -> None:
        failed, self._asked = self._asked, {}
        for asked in failed.values():
            with suppress(InvalidStateError):  # it was given up a moment ago
                asked.future.set_exception(error)


def _is_early(piece: News) -> bool:
    """Return whether more may come soon: a run began or ended, or asked for the first time."""
    told = piece[1]
    return isinstance(told, list) or (told is not None and is_first(told.key))


def _is_runs(piece: News) -> bool:
    return isinstance(piece[1], list)


def given_up(error: Exception) -> ModelError:
    """Return why the engine is given up; an error of the model is its own reason."""
    if isinstance(error, ModelError):
        return error
    failure = ModelError(
        f"the rollout engine cannot be reached any more: {error}. The log of its process says why; "
        f"if memory ran out, lower model.max_model_len or explorer.rollout_model.engine_num. Start "
        f"the run again to go on from its last checkpoint."
    )
    failure.__cause__ = error
    return failure


def closed() -> ModelError:
    """Return what a request gets that came too late."""
    return ModelError("the rollout engine was closed before it answered.")
