r"""Tells a call that is made once more from one that only looks alike.

An SDK that hears nothing asks again and counts: ``x-stainless-retry-count``. Such a call joins the
attempt that is being answered, or gets its reply again. One without a count is another sample, even
if its body is equal.

attempt 0  ASKED ---------> ANSWERED ------> DELIVERED
             |  \--> FAILED (a retry is sampled anew)
retry 1 -----+ joins      retry 1 gets the reply again
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.endpoint.call import Retry, Served

__all__ = ["Attempt", "Attempts"]


@dataclass(eq=False, slots=True)
class Attempt:
    """One call on its way; lives on the loop of the server."""

    task: asyncio.Task[Served]
    count: int  # the latest of the client's tries that it is for
    num_waiting: int = 0  # clients that wait for it

    def __post_init__(self) -> None:
        self.task.add_done_callback(_seen)  # also where nobody waits any more

    @property
    def has_failed(self) -> bool:
        """Return whether there is no reply to give again, and will be none."""
        if not self.task.done():
            return self.task.cancelling() > 0
        return self.task.cancelled() or self.task.exception() is not None

    async def reply(self) -> Served:
        """Return the answer; when the last client that waits is gone, it is cancelled."""
        self.num_waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self.num_waiting -= 1
            if not self.num_waiting and not self.task.done():
                self.task.cancel()


class Attempts:
    """The attempts of one run."""

    def __init__(self) -> None:
        self._by_body: dict[bytes, list[Attempt]] = {}
        self._by_key: dict[tuple[str, bytes], Attempt] = {}

    def find(self, retry: Retry) -> Attempt | None:
        """Return the attempt that the call repeats; None: it is a call of its own."""
        if retry.key:
            attempt = self._by_key.get((retry.key, retry.body))
            if attempt is not None:
                return None if attempt.has_failed else attempt
        if not retry.count:
            return None
        made = [one for one in self._by_body.get(retry.body, ()) if one.count == retry.count - 1]
        if not made:
            return None
        found = min(made, key=_how_lost)
        found.count = retry.count
        return None if found.has_failed else found

    def add(self, retry: Retry, attempt: Attempt) -> None:
        """Keep an attempt, in case that it is repeated."""
        self._by_body.setdefault(retry.body, []).append(attempt)
        if retry.key:
            self._by_key[retry.key, retry.body] = attempt

    def cancel(self) -> None:
        """Cancel what is being answered."""
        for attempts in self._by_body.values():
            for attempt in attempts:
                attempt.task.cancel()


def _seen(task: asyncio.Task[Served]) -> None:
    if not task.cancelled():
        task.exception()


def _how_lost(attempt: Attempt) -> int:
    """Return 0 for the attempt whose client surely heard nothing, more where it may have."""
    if attempt.has_failed:
        return 2
    if not attempt.task.done():
        return 0
    return 3 if attempt.task.result().is_delivered else 1
