"""Where does a reply end?

An end token, a stop token, the token that completes a stop string, the end of a structure, or the
last token that there is room for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trinity.common.generation.requests import OwnTokenizer
    from trinity.common.generation.structure import Structures
    from trinity.engines.rows import Row

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
        if token in self._eos and not request.ignore_eos:
            return "stop"
        if row.matcher is not None and _has_matched(row, token) and request.ignore_eos:
            return "stop"  # else an end token, the only one that may follow, ends it
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


def _has_matched(row: Row, token: int) -> bool:
    """Tell the matcher of the token; return whether nothing more can follow."""
    row.matcher.consume_token(token)
    if row.matcher.is_error():
        row.failure = row.matcher.get_error()
    return bool(row.matcher.is_stopped())
