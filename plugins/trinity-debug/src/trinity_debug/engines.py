"""Engines of a debugged run: one that is watched, one that says what it is told, one that repeats.

workflow --chat--> ModelWrapper --submit--> Watched --> the run's engine | Saying | Repeating
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from trinity.common.ports import Completion, WeightVersion
from trinity.errors import ModelError

from trinity_debug.difference import num_same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.ports import GenerationRequest, RolloutEngine, RunKey, WeightSnapshot

    from trinity_debug.recorded import Exchange


class EngineObserver(Protocol):
    """Hears of each request and of its answer, from whichever thread makes it."""

    def asked(self, number: int, request: GenerationRequest) -> None:
        """Hear of the ``number``-th request of the run, from 1."""

    def answered(self, number: int, outcome: list[Completion] | BaseException) -> None:
        """Hear of its answer."""


class Watched:
    """Tells an observer what an engine is asked and answers.

    Args:
        engine: it.
        observer: who is told.
    """

    def __init__(self, engine: RolloutEngine, observer: EngineObserver) -> None:
        self._engine = engine
        self._observer = observer
        self._count = itertools.count(1)

    @property
    def version(self) -> WeightVersion:
        """Return the engine's."""
        return self._engine.version

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Pass a request on."""
        number = next(self._count)
        self._observer.asked(number, request)
        future = self._engine.submit(request)

        def told(done: Future[list[Completion]]) -> None:
            if not done.cancelled():
                self._observer.answered(number, done.exception(0) or done.result(0))

        future.add_done_callback(told)
        return future

    def __getattr__(self, name: str) -> Any:  # Any: whatever else the engine can
        return getattr(self._engine, name)


class _Immediate:
    """An engine whose answers are there at once."""

    version = WeightVersion(0)
    busy_s = 0.0

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Answer a request."""
        future: Future[list[Completion]] = Future()
        try:
            future.set_result([self._reply(request) for _ in range(request.n)])
        except ModelError as error:
            future.set_exception(error)
        return future

    def _reply(self, request: GenerationRequest) -> Completion:
        raise NotImplementedError

    def run_began(self, key: RunKey) -> None:
        """Note nothing."""

    def run_ended(self, key: RunKey) -> None:
        """Note nothing."""

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Note nothing: there are no weights."""

    def close(self) -> None:
        """Hold nothing."""


class Saying(_Immediate):
    """Says one text after the other, the last one again and again; no model is loaded.

    Args:
        texts: at least one.
        chat_format: of the model whose part it takes.
    """

    def __init__(self, texts: Sequence[str], *, chat_format: ChatFormat) -> None:
        end = chat_format.eos_token_ids[:1]
        self._replies = [(*chat_format.encode(text), *end) for text in texts]
        self._next = 0

    def _reply(self, request: GenerationRequest) -> Completion:
        ids = self._replies[min(self._next, len(self._replies) - 1)]
        self._next += 1
        return _completion(ids[: request.max_new_tokens], is_cut=len(ids) > request.max_new_tokens)


class Repeating(_Immediate):
    """Gives the recorded reply to the recorded prompt; another prompt ends the run.

    Args:
        exchanges: of the recorded run, in its order.
        chat_format: decodes what differs.
    """

    def __init__(self, exchanges: Sequence[Exchange], *, chat_format: ChatFormat) -> None:
        self.left = list(exchanges)
        self.num_repeated = 0
        self.difference: tuple[str, str] | None = None  # recorded and now, from where they differ
        self._chat_format = chat_format

    def _reply(self, request: GenerationRequest) -> Completion:
        if self.difference is not None:
            raise ModelError("an earlier call differs from the recorded run.")
        prompt = request.prompt_token_ids
        for place, exchange in enumerate(self.left):
            if exchange.prompt == prompt:
                self.num_repeated += 1
                del self.left[place]
                return self._repeated(exchange, request)
        call = f"call {self.num_repeated + 1}"
        if not self.left:
            self.difference = ("", self.text(prompt))
            raise ModelError(f"{call} was not made in the recorded run.")
        wanted = self.left[0].prompt
        same = num_same(wanted, prompt)
        self.difference = (self.text(wanted[same:]), self.text(prompt[same:]))
        raise ModelError(f"{call} differs from the recorded one after {same} tokens of its prompt.")

    def _repeated(self, exchange: Exchange, request: GenerationRequest) -> Completion:
        """Return the reply, ended by what the request now says ends one."""
        text = self.text(exchange.reply)
        stop = next((one for one in request.stop if one in text), None)
        is_stopped = stop is not None or exchange.reply[-1] in request.stop_token_ids
        return _completion(
            exchange.reply,
            is_cut=exchange.is_cut and not is_stopped,
            logprobs=exchange.logprobs,
            stop_reason=stop,
        )

    def text(self, ids: Sequence[int]) -> str:
        """Return what tokens say, special ones too."""
        return self._chat_format.decode(ids, skip_special_tokens=False)


def _completion(
    ids: tuple[int, ...],
    *,
    is_cut: bool,
    logprobs: tuple[float, ...] = (),
    stop_reason: str | None = None,
) -> Completion:
    return Completion(
        token_ids=ids,
        logprobs=logprobs or (0.0,) * len(ids),
        finish_reason="length" if is_cut else "stop",
        weight_version=WeightVersion(0),
        stop_reason=stop_reason,
    )
