"""An event loop in a thread of its own, for workflows that await."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trinity.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

logger = logging.getLogger(__name__)

_LOOP_ANSWERS_WITHIN_S = 1.0


class EventLoopThread:
    """An event loop in a thread of its own, for workflows that await; replaced when it is stuck."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread()  # of the loop, if there is one
        self._executor: ThreadPoolExecutor | None = None  # for what it runs in threads
        self._lock = threading.Lock()
        self._is_told = False

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._executor = ThreadPoolExecutor(thread_name_prefix="trinity-awaited")
                self._loop.set_default_executor(self._executor)
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="trinity-event-loop", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(_without_exit(coroutine), self._loop)

    def replace_if_stuck(self) -> bool:
        """Leave the loop behind if something blocks it; return whether it was."""
        with self._lock:
            loop = self._loop
        if loop is None:
            return False
        has_answered = threading.Event()
        loop.call_soon_threadsafe(has_answered.set)
        if has_answered.wait(_LOOP_ANSWERS_WITHIN_S):
            return False
        if not self._is_told:
            logger.warning(
                "a workflow blocks the event loop; starting another event loop. Let run_async "
                "await, or call what blocks with asyncio.to_thread. Not logged again."
            )
        self._is_told = True
        with self._lock:
            self._thread.name = "trinity-stuck-event-loop"
            self._loop = None
        return True

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
            executor, self._executor = self._executor, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        if executor is not None:
            executor.shutdown(wait=False)  # its idle threads end; one in which a run hangs stays


async def _without_exit(coroutine: Coroutine[Any, Any, Any]) -> Any:  # Any: what it returns
    try:
        return await coroutine
    except SystemExit as error:  # it would end the loop, and nobody would hear of it
        raise WorkflowError(f"sys.exit({error})").with_traceback(error.__traceback__) from None
