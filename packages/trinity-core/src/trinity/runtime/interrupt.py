"""Ctrl-C: once to save and close after the step; twice, or before the first, to stop at once."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from trinity.starting import leave

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

T = TypeVar("T")
STOPPED = "stopped at once, while the run was loading: the same command goes on"


class Interrupt:
    """Notes the first SIGINT or SIGTERM and turns the second into ``KeyboardInterrupt``.

    Before and inside the first function that :meth:`at_once` returned, and inside any other, the
    first one is already that: there is nothing to save. A line says so.

    Args:
        say: prints a line.
        may_leave: whether the first ends the process at once, as nothing inside is to be closed:
            libraries lose a ``KeyboardInterrupt`` while they are imported, or hide it.

    Attributes:
        is_requested: whether the run was asked to stop.
        has_checkpoint: whether a run that is stopped now goes on from one.

    A context manager; outside the main thread, where Python delivers no signals, it only remembers
    what :meth:`request` is told.
    """

    def __init__(self, say: Callable[[str], None], *, may_leave: bool = False) -> None:
        self._say = say
        self._may_leave = may_leave
        self.is_requested = False
        self._is_loading = True
        self._previous: dict[int, object] = {}
        self.has_checkpoint: Callable[[], bool] = lambda: True

    def request(self) -> None:
        self.is_requested = True

    def at_once(self, load: Callable[[], T]) -> Callable[[], T]:
        """Return ``load`` as a function that the first Ctrl-C already ends.

        Args:
            load: what may be left half done, as nothing of it has to be saved.
        """

        def loaded() -> T:
            self._is_loading = True
            try:
                if self.is_requested:  # a moment ago, with nothing to save yet
                    self._try_to_say(STOPPED)
                    raise KeyboardInterrupt
                result = load()
            except Exception as error:
                if self.is_requested:  # and a library made this of it
                    raise KeyboardInterrupt from error
                self._is_loading = False
                raise
            self._is_loading = False  # one that was stopped has loaded nothing
            return result

        return loaded

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_second = self.is_requested
        self.request()
        if self._is_loading and self._may_leave:
            leave(STOPPED)
        if self._is_loading:
            self._try_to_say(STOPPED)
            raise KeyboardInterrupt
        if is_second:
            where = "goes on from the last checkpoint"
            if not self.has_checkpoint():
                where = "starts over, as no checkpoint was written yet"
            self._try_to_say(f"stopped at once: the same command {where}")
            raise KeyboardInterrupt
        self._try_to_say(
            "stopping: the step is finished and saved first; Ctrl-C again stops at once"
        )

    def _try_to_say(self, text: str) -> None:
        with suppress(RuntimeError):  # the signal came in the middle of another line's writing
            self._say(text)
