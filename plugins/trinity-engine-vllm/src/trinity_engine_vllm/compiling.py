"""Requests that wait until their structures are compiled."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.generation.requests import fail
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from trinity.common.generation import PendingReply
    from trinity.common.generation.structure import Compiled

__all__ = ["Compiling"]


class Compiling:
    """The requests of one engine that cannot join it yet; thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[PendingReply[Any], None] = {}  # Any: completions
        self._changing = threading.Lock()
        self._closed: ModelError | None = None

    def add(
        self,
        compiled: Future[Compiled],
        *,
        future: PendingReply[Any],
        join: Callable[[Compiled], None],
    ) -> None:
        """Let a request join its engine: at once, where its structure is compiled.

        Args:
            compiled: its structure.
            future: fails if the structure is bad, or the engine refuses the request later.
            join: gives the request to the engine.

        Raises:
            ModelError: the engine refuses the request at once, or was closed.
        """
        with self._changing:
            if self._closed is not None:
                raise self._closed
            is_compiled = compiled.done()
            if not is_compiled:
                self._waiting[future] = None
        if is_compiled:
            join(compiled.result())
            return
        compiled.add_done_callback(partial(self._join, future=future, join=join))

    @property
    def num_open(self) -> int:
        """Return how many requests wait that were not given up."""
        with self._changing:
            return sum(not future.done() for future in self._waiting)

    def close(self, error: ModelError) -> None:
        """Answer all that waits, and all that comes, with the error."""
        with self._changing:
            self._closed = error
            left, self._waiting = self._waiting, {}
        for future in left:
            fail(future, error)

    def _join(
        self,
        compiled: Future[Compiled],
        *,
        future: PendingReply[Any],
        join: Callable[[Compiled], None],
    ) -> None:
        with self._changing:
            if future not in self._waiting:
                return  # the engine was closed: close() answers it
            del self._waiting[future]
        if future.done():
            return  # it was given up
        try:
            join(compiled.result())
        except ModelError as error:
            fail(future, error)
