"""Rollout engines without a model: one says what a script says, one repeats its prompt.

Both speak real token ids of a small byte-level tokenizer, one token for each character. That
is never how the tokenizer itself would cut the text, so a workflow that tokenises a text again is
found out.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from trinity.common.generation import PendingReply
from trinity.common.ports import Completion, WeightVersion
from trinity.engines.rows import completed_stop
from trinity.errors import ModelError

from trinity_testing.tiny import TURN_END, TURN_START, make_tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transformers import PreTrainedTokenizerFast
    from trinity.common.ports import GenerationRequest, RunKey, WeightSnapshot

__all__ = ["AnsweringEngine", "EchoEngine", "Exchange", "ScriptedEngine", "script_tokenizer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One request and what it was answered with."""

    request: GenerationRequest
    completions: tuple[Completion, ...]


@cache
def script_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer of these engines, with a chat template."""
    return make_tiny_tokenizer()


class AnsweringEngine(ABC):
    """Answers each request at once; the futures are done when they are returned.

    Between :meth:`hold` and :meth:`release` requests wait, and can be given up.

    Attributes:
        exchanges: each request with its completions, in order.
        num_requests, num_samples, num_prefills: what was asked for; a prompt is prefilled once.
        num_failures: requests that were answered with a ``ModelError``.
        num_open_runs: runs that began and did not end.
        busy_s: 0: it answers at once.
        snapshot: the weights that were loaded last, None at first.
        before_answer: called with each request before it is answered, outside the lock.
    """

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.num_requests = self.num_samples = self.num_prefills = 0
        self.num_failures = self.num_open_runs = 0
        self.busy_s = 0.0
        self.snapshot: WeightSnapshot | None = None
        self.before_answer: Callable[[GenerationRequest], None] = lambda request: None
        self.tokenizer = script_tokenizer()
        self._lock = threading.RLock()
        self._is_closed = self._is_held = False
        self._held: list[tuple[GenerationRequest, PendingReply[list[Completion]]]] = []

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that were loaded last."""
        return self.snapshot.version if self.snapshot else WeightVersion(0)

    @abstractmethod
    def answer(self, request: GenerationRequest) -> str:
        """Return the text of the next sample.

        Raises:
            ModelError: the engine fails.
        """

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Return a done future with ``request.n`` completions, or with a ``ModelError``."""
        future: PendingReply[list[Completion]] = PendingReply(on_cancel=self._drop_cancelled)
        with self._lock:
            if self._is_held:
                self._held.append((request, future))
                return future
        self._answer(request, future)
        return future

    @property
    def num_open(self) -> int:
        """Return how many requests wait for an answer."""
        with self._lock:
            return len(self._held)

    def hold(self) -> None:
        """Let further requests wait."""
        with self._lock:
            self._is_held = True

    def release(self) -> None:
        """Answer what waits, in order, and what comes at once."""
        with self._lock:
            self._is_held = False
            held, self._held = self._held, []
        for request, future in held:
            self._answer(request, future)

    def _answer(self, request: GenerationRequest, future: PendingReply[list[Completion]]) -> None:
        try:
            self.before_answer(request)
            outcome: list[Completion] | ModelError = self._complete(request)
        except ModelError as error:
            self.num_failures += 1
            outcome = error
        with suppress(InvalidStateError):  # it was given up meanwhile
            if isinstance(outcome, ModelError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _drop_cancelled(self) -> None:
        with self._lock:
            self._held = [pair for pair in self._held if not pair[1].done()]

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        """Return a done future with a number for each token but the first, which says its place."""
        future: Future[list[float]] = Future()
        future.set_result([-(1 + place % 15) / 16 for place in range(len(token_ids) - 1)])
        return future

    def run_began(self, key: RunKey) -> None:
        """Count one more open run."""
        with self._lock:
            self.num_open_runs += 1

    def run_ended(self, key: RunKey) -> None:
        """Count one open run less."""
        with self._lock:
            self.num_open_runs -= 1

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Keep the snapshot, whose version the next completions carry."""
        with self._lock:
            self.snapshot = snapshot

    def close(self) -> None:
        """Fail what waits, and every later request."""
        self._is_closed = True
        self.release()

    def token_ids(self, text: str) -> tuple[int, ...]:
        """Return the ids that this engine says the text with, without the end of turn."""
        return tuple(
            token
            for character in text
            for token in self.tokenizer.encode(character, add_special_tokens=False)
        )

    def _complete(self, request: GenerationRequest) -> list[Completion]:
        with self._lock:
            if self._is_closed:
                raise ModelError("the engine is closed")
            if request.structure is not None:
                raise ModelError("structure: this engine says what it says, and holds to none.")
            for name in ("presence_penalty", "frequency_penalty", "logit_bias"):
                if getattr(request, name):
                    raise ModelError(f"{name}: this engine says what it says, whatever the logits.")
            self.num_requests += 1
            self.num_prefills += 1
            completions = [self._sample(request) for _ in range(request.n)]
            self.exchanges.append(Exchange(request=request, completions=tuple(completions)))
            return completions

    def _sample(self, request: GenerationRequest) -> Completion:
        text = self.answer(request)
        turn_end = self.tokenizer.convert_tokens_to_ids(TURN_END)
        assert isinstance(turn_end, int), "one token, one id"
        said = (*self.token_ids(text), turn_end)
        token_ids, stop_reason = self._until_stop(said[: request.max_new_tokens], request)
        is_cut = len(said) > len(token_ids) == request.max_new_tokens
        start = self.num_samples  # so that no two samples have the same log-probabilities
        self.num_samples += 1
        is_stopped = stop_reason is not None or {*token_ids[-1:]} <= {*request.stop_token_ids}
        return Completion(
            token_ids=token_ids,
            logprobs=tuple(-(1 + (start + place) % 15) / 16 for place in range(len(token_ids))),
            finish_reason="length" if is_cut and not is_stopped else "stop",
            weight_version=self.version,
            stop_reason=stop_reason,
        )

    def _until_stop(
        self, token_ids: tuple[int, ...], request: GenerationRequest
    ) -> tuple[tuple[int, ...], str | None]:
        """Return the ids up to the one that ends the reply, and the stop string, if one did."""
        if not (request.stop or request.stop_token_ids):
            return token_ids, None
        for count in range(max(1, request.min_new_tokens), len(token_ids) + 1):
            said = token_ids[:count]
            if said[-1] in request.stop_token_ids:
                return said, None
            if request.stop and (found := completed_stop(said, request.stop, decode=self._text)):
                return said, found
        return token_ids, None

    def _text(self, token_ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode([*token_ids], skip_special_tokens=False))


class ScriptedEngine(AnsweringEngine):
    """Says its answers one after the other, one a sample.

    Args:
        answers: what it says.
        repeat: begin anew after the last answer; otherwise a further sample is a ``ModelError``.
        fails_at: the sample (from 0) that fails with a ``ModelError``, as all after it do.

    >>> engine = ScriptedEngine("left", "right")
    """

    def __init__(self, *answers: str, repeat: bool = False, fails_at: int | None = None) -> None:
        super().__init__()
        self.answers = answers
        self.repeat = repeat
        self.fails_at = fails_at

    def answer(self, request: GenerationRequest) -> str:
        """Return the next answer of the script."""
        number = self.num_samples
        if self.fails_at is not None and number >= self.fails_at:
            raise ModelError(f"the scripted engine fails at sample {number}, as it was told to")
        if number >= len(self.answers) and not (self.repeat and self.answers):
            raise ModelError(
                f"the script has {len(self.answers)} answers, and one more is asked for. "
                f"Give ScriptedEngine more answers, or repeat=True."
            )
        return self.answers[number % len(self.answers)]


class EchoEngine(AnsweringEngine):
    """Says what the last message of its prompt says."""

    def answer(self, request: GenerationRequest) -> str:
        """Return the text of the last message before the generation prompt."""
        text = str(self.tokenizer.decode([*request.prompt_token_ids], skip_special_tokens=False))
        turns = [turn for turn in text.split(TURN_START) if TURN_END in turn]
        if not turns:
            return text.splitlines()[-1] if text else ""
        _, _, content = turns[-1].partition("\n")
        return content.partition(TURN_END)[0]
