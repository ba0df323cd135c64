"""The requests behind the lockstep barrier: their rows join a batch, go on, and leave it.

barrier --take_joining()--> queue --joining()--> Batch --sample(), follow()--> futures
                                                 ^             |
barrier --take_urgent()--> jobs                  +-- rows that go on
       (new weights between two steps)
"""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from trinity.common.generation.requests import begins
from trinity.common.out_of_memory import out_of_memory
from trinity.common.ports import Completion, WeightVersion
from trinity.engines.rows import Ask, Row
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from trinity.engines.batch import Batch
    from trinity.engines.lockstep import LockstepBarrier, QueuedRequest

logger = logging.getLogger(__name__)

_REMEDIES = (
    "explorer.rollout_model.dtype: bfloat16",
    "model.max_model_len: less than it is",
    "trainer.max_token_len_per_gpu, trainer.optimizer_offload, trainer.param_offload, if the "
    "trainer uses the same GPU",
)
_SHARE = 8  # a full batch is joined once an eighth of it is free: each joining costs a prefill


class RequestQueue:
    """QueuedRequest rows; which of them join is a function of them and of the batch alone.

    Args:
        max_rows: rows of the batch.
        max_tokens: of the batch, every row as long as the longest prompt and reply.
        max_model_len: context of the model: bounds the replies.
    """

    def __init__(self, *, max_rows: int, max_tokens: int, max_model_len: int) -> None:
        self._max_rows = max_rows
        self._max_tokens = max_tokens
        self._max_model_len = max_model_len
        self._asks: deque[tuple[Ask, deque[Row]]] = deque()

    def __len__(self) -> int:
        return len(self._asks)

    def add(self, taken: Iterable[QueuedRequest]) -> None:
        """Append requests, in the order they shall be answered in."""
        for waiting in taken:
            request = waiting.request
            room = self._max_model_len - len(request.prompt_token_ids)
            ask = Ask(waiting=waiting)
            limit = min(request.max_new_tokens, room)
            rows = [Row(ask=ask, sample=sample, limit=limit) for sample in range(request.n)]
            self._asks.append((ask, deque(rows)))

    def joining(self, batch: Sequence[Row], *, only_begun: bool = False) -> list[Row]:
        """Take the rows that fit beside the batch; a request is cut only if it never fits whole.

        Args:
            batch: the rows that are being continued.
            only_begun: no request begins, what began goes on: new weights wait.
        """
        if not self._asks:
            return []
        rows: list[Row] = []
        longest = max((row.longest for row in batch), default=0)
        while self._asks:
            ask, waiting = self._asks[0]
            is_new = len(waiting) == ask.request.n and not any(row.tokens for row in waiting)
            if only_begun and is_new:
                break
            longest = max(longest, waiting[0].longest)
            free = self._capacity(longest) - len(batch) - len(rows)
            count = min(len(waiting), free)
            if count < len(waiting) and self._fits_whole(ask):
                break
            rows += [waiting.popleft() for _ in range(max(0, count))]
            if waiting:
                break
            self._asks.popleft()
        if self._asks and batch and rows and len(rows) * _SHARE < len(batch):
            return self._put_back(rows)
        return rows

    def shrink(self, rows: Sequence[Row]) -> int | None:
        """Put rows back to the front, and let half as many of them be continued at a time.

        Args:
            rows: of the batch that did not fit.

        Returns:
            the new number of rows; None: there was one alone, which can be no less.
        """
        if len(rows) < 2:
            return None
        self._max_rows = len(rows) // 2
        self._max_tokens = min(self._max_tokens, self._max_rows * max(row.longest for row in rows))
        front = self._asks[0][0] if self._asks else None  # whose other rows still wait
        places = {ask: place for place, ask in enumerate(dict.fromkeys(row.ask for row in rows))}
        self._put_back(
            sorted(rows, key=lambda row: (row.ask is front, places[row.ask], row.sample))
        )
        return self._max_rows

    def drop_done(self) -> None:
        """Forget the requests that have failed or were given up."""
        self._asks = deque(pair for pair in self._asks if not pair[0].waiting.future.done())

    def untouched(self) -> set[QueuedRequest]:
        """Return the requests of which no row has joined."""
        return {ask.waiting for ask, rows in self._asks if len(rows) == ask.request.n}

    def _capacity(self, longest: int) -> int:
        return max(1, min(self._max_rows, self._max_tokens // longest))

    def _fits_whole(self, ask: Ask) -> bool:
        longest = len(ask.request.prompt_token_ids) + ask.request.max_new_tokens
        return ask.request.n <= self._capacity(min(longest, self._max_model_len))

    def _put_back(self, rows: list[Row]) -> list[Row]:
        """Wait for more free slots."""
        for row in reversed(rows):
            if not self._asks or self._asks[0][0] is not row.ask:
                self._asks.appendleft((row.ask, deque()))
            self._asks[0][1].appendleft(row)
        return []


_Outcome = tuple["QueuedRequest", "list[Completion] | ModelError"]


class RequestLoop:
    """What the engine's thread does with requests; owned by that thread.

    Args:
        gate: where they come from.
        backlog: of those that were taken and have no place in the batch.
        new_batch: makes an empty one for weights of a version.
        computing: gives the block in which the model computes.
    """

    def __init__(
        self,
        gate: LockstepBarrier,
        *,
        backlog: RequestQueue,
        new_batch: Callable[[WeightVersion], Batch],
        computing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._gate = gate
        self._backlog = backlog
        self._new_batch = new_batch
        self._computing = computing
        self._open: dict[QueuedRequest, None] = {}  # taken and not answered
        self._has_failed = False  # rows of a failed request may still be here
        self._has_shrunk = False  # and it was said
        self.version = WeightVersion(0)  # of the weights
        self.busy_s = 0.0  # spent on generating
        self.begins_anew = False  # the replies under way do, after the jobs that are being done

    @property
    def num_open(self) -> int:
        return len(self._open)

    @property
    def has_waiting(self) -> bool:
        return len(self._backlog) > 0

    def take(self, requests: Sequence[QueuedRequest]) -> None:
        """Open requests, in the order they shall be answered in."""
        live = dict.fromkeys(w for w in requests if begins(w.future))
        self._gate.answered(w.request.key for w in requests if w not in live)
        self._open.update(live)
        self._backlog.add(live)

    def run_batch(self) -> None:
        """Continue rows until none is left, with joining and leaving."""
        batch = self._new_batch(self.version)
        began = time.perf_counter()
        outcomes: list[_Outcome] = []
        rows: list[Row] = []
        while True:
            with self._computing():
                outcomes += self._stepped(batch, rows)
            if not self._gate.has_urgent:
                break
            self._resolve(outcomes)
            outcomes, rows = [], self._swapped(batch)
        self.busy_s += time.perf_counter() - began
        self._resolve(outcomes)

    def fail_all(self, error: ModelError) -> None:
        self._resolve([(waiting, error) for waiting in self._open])

    def _swapped(self, batch: Batch) -> list[Row]:
        """Do what is to be done between two steps; return the rows that go on after it."""
        self.begins_anew = False
        for job in self._gate.take_urgent():
            job()
        rows = [row for row in batch.leave(self.version) if not row.ask.waiting.future.done()]
        if self.begins_anew:
            for row in rows:
                row.begin_anew()
        return rows

    def _stepped(self, batch: Batch, rows: Sequence[Row]) -> list[_Outcome]:
        """Continue rows until none is left or something is to be done between two steps."""
        outcomes: list[_Outcome] = []
        while True:
            try:
                self._check_open()
                outcomes += self._begun(batch, rows)
                if self._gate.has_urgent:
                    return outcomes
                rows = ()
                outcomes += self._joined(batch)
                if not batch.rows:
                    return outcomes
                outcomes += self._answers(batch.sample())
                if batch.rows:
                    self._resolve(outcomes)
                    outcomes = []
                    batch.follow()
            except torch.OutOfMemoryError as error:
                if not self._shrunk(batch, error):
                    return [*outcomes, *self._failed(error)]
                rows = ()
            except Exception as error:  # noqa: BLE001 -- the rows' rollouts; the engine lives on
                return [*outcomes, *self._failed(error)]

    def _shrunk(self, batch: Batch, error: torch.OutOfMemoryError) -> bool:
        """Go on with half of the rows at a time; return False where that cannot be."""
        rows = batch.interrupted()
        number = self._backlog.shrink(rows) if rows else None
        if number is None:
            return False
        logger.log(
            logging.INFO if self._has_shrunk else logging.WARNING,
            "the GPU ran out of memory in the rollout: %s The engine goes on with at most %d "
            "replies at a time; before, it had %d. That is slower: set "
            "explorer.rollout_model.dtype: bfloat16, a smaller model.max_model_len, or, if the "
            "trainer uses the same GPU, a smaller trainer.max_token_len_per_gpu.",
            str(error).splitlines()[0],
            number,
            len(rows),
        )
        self._has_shrunk = True
        return True

    def _joined(self, batch: Batch) -> list[_Outcome]:
        """Let rows that nobody wants leave, and those that fit join; return who failed."""
        self.take(self._gate.take_joining())
        if self._gate.take_cancelled() or self._has_failed:
            self._drop_dead(batch)
        rows = self._backlog.joining(batch.rows, only_begun=self._gate.has_jobs)
        return self._begun(batch, rows)

    def _begun(self, batch: Batch, rows: Sequence[Row]) -> list[_Outcome]:
        failed = batch.join(rows) if rows else []
        return [(row.ask.waiting, _failure(error)) for row, error in failed]

    def _drop_dead(self, batch: Batch) -> None:
        self._has_failed = False
        batch.drop(lambda row: row.ask.waiting.future.done())
        self._backlog.drop_done()
        dead = [waiting for waiting in self._open if waiting.future.done()]
        for waiting in dead:
            del self._open[waiting]
        self._gate.answered(waiting.request.key for waiting in dead)

    def _answers(self, ended: Sequence[tuple[Row, str]]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        for row, reason in ended:
            ask = row.ask
            try:
                ask.replies[row.sample] = row.completion(reason=reason)
            except ModelError as error:
                outcomes.append((ask.waiting, error))
            if len(ask.replies) == ask.request.n:
                outcomes.append((ask.waiting, ask.completions()))
        return outcomes

    def _failed(self, error: Exception) -> list[_Outcome]:
        """Return the failure for every request that has or had a row in the batch."""
        untouched = self._backlog.untouched()
        return [(waiting, _failure(error)) for waiting in self._open if waiting not in untouched]

    def _resolve(self, outcomes: Sequence[_Outcome]) -> None:
        """Answer the requests that have no answer yet; their runs are away from then on."""
        news = [pair for pair in outcomes if self._open.pop(pair[0], 0) is None]
        self._gate.answered(waiting.request.key for waiting, _ in news)
        for waiting, outcome in news:
            with suppress(InvalidStateError):  # it was given up a moment ago
                if isinstance(outcome, ModelError):
                    self._has_failed = True
                    waiting.future.set_exception(outcome)
                else:
                    waiting.future.set_result(outcome)

    def _check_open(self) -> None:
        if self._gate.is_closed:
            raise closed()


def _failure(error: Exception) -> ModelError:
    if isinstance(error, ModelError):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        failure = out_of_memory(error, phase="rollout (of one reply)", remedies=_REMEDIES)
    else:
        failure = ModelError(
            f"the rollout engine failed while generating: {type(error).__name__}: {error}."
        )
    failure.__cause__ = error
    return failure


def closed() -> ModelError:
    """Return the failure of what a closed engine did not answer."""
    return ModelError("the rollout engine was closed before it answered.")
