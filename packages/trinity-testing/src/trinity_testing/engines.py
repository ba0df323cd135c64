"""Rollout engines without a model: one says what a script says, one repeats its prompt.

Both speak real token ids of a small byte-level tokenizer, one token for each character. That
is never how the tokenizer itself would cut the text, so a workflow that tokenises a text again is
found out.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from trinity.common.ports import Completion, WeightVersion
from trinity.errors import ModelError

from trinity_testing.tiny import TURN_END, TURN_START, make_tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._is_closed = False

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
        future: Future[list[Completion]] = Future()
        try:
            self.before_answer(request)
            future.set_result(self._complete(request))
        except ModelError as error:
            self.num_failures += 1
            future.set_exception(error)
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
        """Fail every later request."""
        self._is_closed = True

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
            self.num_requests += 1
            self.num_prefills += 1
            completions = [self._sample(request) for _ in range(request.n)]
            self.exchanges.append(Exchange(request=request, completions=tuple(completions)))
            return completions

    def _sample(self, request: GenerationRequest) -> Completion:
        text = self.answer(request)
        turn_end = self.tokenizer.convert_tokens_to_ids(TURN_END)
        assert isinstance(turn_end, int), "one token, one id"
        token_ids = (*self.token_ids(text), turn_end)
        is_cut = len(token_ids) > request.max_new_tokens
        token_ids = token_ids[: request.max_new_tokens]
        start = self.num_samples  # so that no two samples have the same log-probabilities
        self.num_samples += 1
        return Completion(
            token_ids=token_ids,
            logprobs=tuple(-(1 + (start + place) % 15) / 16 for place in range(len(token_ids))),
            finish_reason="length" if is_cut else "stop",
            weight_version=self.version,
        )


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
