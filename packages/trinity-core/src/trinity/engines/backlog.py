"""The requests that were taken and have rows outside the batch: what fits joins in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from trinity.engines.rows import Ask, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.engines.gate import Waiting

_SHARE = 8  # a full batch is joined once an eighth of it is free: each joining costs a prefill


class Backlog:
    """Waiting rows; which of them join is a function of them and of the batch alone.

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
        """Return how many requests have rows here."""
        return len(self._asks)

    def add(self, taken: Iterable[Waiting]) -> None:
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
            if only_begun and len(waiting) == ask.request.n:
                break
            longest = max(longest, waiting[0].longest)
            free = self._room(longest) - len(batch) - len(rows)
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

    def drop_done(self) -> None:
        """Forget the requests that have failed or were given up."""
        self._asks = deque(pair for pair in self._asks if not pair[0].waiting.future.done())

    def untouched(self) -> set[Waiting]:
        """Return the requests of which no row has joined."""
        return {ask.waiting for ask, rows in self._asks if len(rows) == ask.request.n}

    def _room(self, longest: int) -> int:
        return max(1, min(self._max_rows, self._max_tokens // longest))

    def _fits_whole(self, ask: Ask) -> bool:
        longest = len(ask.request.prompt_token_ids) + ask.request.max_new_tokens
        return ask.request.n <= self._room(min(longest, self._max_model_len))

    def _put_back(self, rows: list[Row]) -> list[Row]:
        """Wait for more free slots."""
        for row in reversed(rows):
            if not self._asks or self._asks[0][0] is not row.ask:
                self._asks.appendleft((row.ask, deque()))
            self._asks[0][1].appendleft(row)
        return []
