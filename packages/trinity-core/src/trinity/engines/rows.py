"""One sample that is being continued, and the request that it is part of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Completion, GenerationRequest, WeightVersion
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trinity.common.generation.own_tokenizer import OwnTokenizer
    from trinity.common.generation.structure import Structures
    from trinity.engines.lockstep import QueuedRequest

Settings = tuple[object, ...]


def least_tokens(request: GenerationRequest) -> int:
    """Return before how many tokens nothing but the limit ends a reply; 0 within a structure."""
    return 0 if request.structure else request.min_new_tokens


def is_penalised(r: GenerationRequest) -> bool:
    """Return whether what a reply has said changes what it says next."""
    return r.repetition_penalty != 1.0 or r.presence_penalty != 0 or r.frequency_penalty != 0


@dataclass(kw_only=True, slots=True, eq=False)
class Ask:
    """A request that was taken, and the completions that it has so far."""

    waiting: QueuedRequest
    replies: dict[int, Completion] = field(default_factory=dict)
    settings: Settings = field(init=False)  # rows with equal ones share the sampler's work

    def __post_init__(self) -> None:
        """Note what the sampler goes by."""
        r = self.waiting.request
        least = least_tokens(r)
        penalties = (r.repetition_penalty, r.presence_penalty, r.frequency_penalty)
        self.settings = (r.temperature, r.top_p, r.top_k, r.min_p, least, *penalties, r.logit_bias)

    @property
    def request(self) -> GenerationRequest:
        return self.waiting.request

    def completions(self) -> list[Completion]:
        return [reply for _, reply in sorted(self.replies.items())]


@dataclass(kw_only=True, slots=True, eq=False)
class Row:
    """The ``sample``-th reply of a request, at most ``limit`` tokens long."""

    ask: Ask
    sample: int
    limit: int
    uniforms: list[float] = field(default_factory=list)  # one a token
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: str | None = None  # the stop string that ended it
    matcher: Any = None  # of its structure; None: any text (Any: llguidance may be missing)
    failure: str = ""  # why it cannot match its structure
    spans: list[tuple[int, int]] = field(default_factory=list)  # (first token, version)
    request: GenerationRequest = field(init=False)
    prompt: tuple[int, ...] = field(init=False)
    least: int = field(init=False)  # tokens, before which neither end tokens nor stops end it
    longest: int = field(init=False)  # how many tokens it can have at its end, with the prompt's

    def __post_init__(self) -> None:
        """Note what is asked for in every step."""
        self.request = self.ask.waiting.request
        self.prompt = self.request.prompt_token_ids
        self.least = least_tokens(self.request)
        self.longest = len(self.prompt) + self.limit

    @property
    def text(self) -> tuple[int, ...]:
        """Return the tokens that it goes on after: the prompt and what was said so far."""
        return (*self.prompt, *self.tokens) if self.tokens else self.prompt

    @property
    def num_left(self) -> int:
        return self.limit - len(self.tokens)

    def begin_anew(self) -> None:
        """Forget what was said so far."""
        self.tokens, self.logprobs, self.spans = [], [], []
        self.stop_reason, self.matcher, self.failure = None, None, ""

    def note_version(self, version: WeightVersion) -> None:
        """Note that the tokens from here on are of this version."""
        if self.spans and self.spans[-1][0] == len(self.tokens):
            self.spans.pop()  # it said nothing with that one
        if not self.spans or self.spans[-1][1] != version:
            self.spans.append((len(self.tokens), int(version)))

    def completion(self, *, reason: str) -> Completion:
        """Return the reply.

        Raises:
            ModelError: the model computes NaN, or the reply cannot match its structure.
        """
        if self.failure:
            raise ModelError(f"the reply cannot continue within its structure: {self.failure}")
        if math.isnan(math.fsum(self.logprobs)):
            raise ModelError(
                f"the model computes NaN with policy version {self.spans[-1][1]}: training "
                f"diverged. Return to an earlier checkpoint, and lower algorithm.optimizer.lr."
            )
        return Completion(
            token_ids=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            finish_reason=reason,
            weight_version=WeightVersion(self.spans[0][1]),
            stop_reason=self.stop_reason,
            version_spans=tuple(self.spans) if len(self.spans) > 1 else (),
        )


_BYTES_OF_A_CHARACTER = 4  # at most, so that many tokens may make up one
_CUT_CHARACTER = "\ufffd"


class StopConditions:
    """Knows of each row whether it has ended; owned by the engine's thread.

    Args:
        eos_V: which tokens end a reply.
        tokenizer: reads the replies that have stop strings.
        structures: say what may follow in the replies with a structure.
    """

    def __init__(self, eos_V: Tensor, *, tokenizer: OwnTokenizer, structures: Structures) -> None:
        self._eos = frozenset(eos_V.nonzero().squeeze(1).tolist())
        self._tokenizer = tokenizer
        self._structures = structures

    def begin(self, row: Row) -> None:
        """Prepare for a row's first token."""
        compiled = row.ask.waiting.compiled
        if compiled is not None:
            row.matcher = compiled.matcher()

    def allowed(self, rows: Sequence[Row]) -> Tensor:
        """Return which tokens each row may go on by, ``[B, V]``."""
        return self._structures.allowed([row.matcher for row in rows])

    def reason(self, row: Row) -> str | None:
        """Return why the row ends with its last token; None: it goes on."""
        token, request = row.tokens[-1], row.request
        if token in self._eos and (row.matcher is not None or not request.ignore_eos):
            return "stop"  # behind a structure nothing else may follow
        if row.matcher is not None:
            _note_token(row, token)
        if (request.stop_token_ids or request.stop) and self._is_stopped(row, token):
            return "stop"
        return "length" if len(row.tokens) == row.limit else None

    def _is_stopped(self, row: Row, token: int) -> bool:
        request = row.request
        if len(row.tokens) < row.least:
            return False
        if token in request.stop_token_ids:
            return True
        if request.stop:
            row.stop_reason = completed_stop(row.tokens, request.stop, decode=self._tokenizer.text)
        return row.stop_reason is not None


def completed_stop(
    tokens: Sequence[int], stops: Sequence[str], *, decode: Callable[[Sequence[int]], str]
) -> str | None:
    """Return the stop string whose match the last token completes: the first, then the longest.

    Only the end of the reply is decoded, as much as the longest stop string can reach back.
    """
    longest = max(map(len, stops))
    width = longest * _BYTES_OF_A_CHARACTER
    text = decode(tokens[-width:])
    while len(text) < longest + _BYTES_OF_A_CHARACTER and width < len(tokens):
        width *= 2  # tokens without a text are among them
        text = decode(tokens[-width:])
    if not any(stop in text for stop in stops):
        return None
    before = len(decode(tokens[-width:][:-1]).rstrip(_CUT_CHARACTER))
    found = [(end, -len(stop), stop) for stop in stops if (end := _end_after(text, stop, before))]
    return min(found)[2] if found else None


def _end_after(text: str, stop: str, before: int) -> int:
    """Return where the first match ends that ends behind ``before``; 0: there is none."""
    start = text.find(stop, max(0, before - len(stop) + 1))
    return start + len(stop) if start >= 0 else 0


def _note_token(row: Row, token: int) -> None:
    row.matcher.consume_token(token)
    if row.matcher.is_error():
        row.failure = row.matcher.get_error()
