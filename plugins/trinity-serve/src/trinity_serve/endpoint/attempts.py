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
    from trinity_serve.endpoint.chat import ChatCompletion, Retry


@dataclass(eq=False, slots=True)
class CallAttempt:
    """One call on its way; lives on the loop of the server.

    It lets go of its task once that has ended: a run keeps all of its attempts.
    """

    task: asyncio.Task[ChatCompletion] | None  # None: it has ended
    count: int  # the latest of the client's tries that it is for
    num_waiting: int = 0  # clients that wait for it
    body: bytes = b""  # a digest of it; calls of equal bodies may be one
    served: ChatCompletion | None = None  # None: there is no answer yet, or none will be

    def __post_init__(self) -> None:
        """Follow the task to its end."""
        assert self.task is not None, "it has just begun"
        self.task.add_done_callback(self._ended)

    @property
    def has_failed(self) -> bool:
        """Return whether there is no reply to give again, and will be none."""
        if self.task is None:
            return self.served is None
        if not self.task.done():
            return self.task.cancelling() > 0
        return self.task.cancelled() or self.task.exception() is not None

    async def reply(self) -> ChatCompletion:
        """Return the answer; when the last client that waits is gone, it is cancelled."""
        if self.served is not None:
            return self.served
        task = self.task
        assert task is not None, "who finds an attempt has looked whether it failed"
        self.num_waiting += 1
        try:
            return await asyncio.shield(task)
        finally:
            self.num_waiting -= 1
            if not self.num_waiting and not task.done():
                task.cancel()

    def cancel(self) -> None:
        """Cancel it where it is being answered."""
        if self.task is not None:
            self.task.cancel()

    def _ended(self, task: asyncio.Task[ChatCompletion]) -> None:
        self.task = None
        if not task.cancelled() and task.exception() is None:
            self.served = task.result()


class CallAttempts:
    """The attempts of one run."""

    def __init__(self) -> None:
        self._made: list[CallAttempt] = []  # looked through for a retry alone
        self._by_key: dict[tuple[str, bytes], CallAttempt] = {}

    def find(self, retry: Retry) -> CallAttempt | None:
        """Return the attempt that the call repeats; None: it is a call of its own."""
        if retry.key:
            attempt = self._by_key.get((retry.key, retry.body))
            if attempt is not None:
                return None if attempt.has_failed else attempt
        if not retry.count:
            return None
        made = [
            one for one in self._made if one.count == retry.count - 1 and one.body == retry.body
        ]
        if not made:
            return None
        found = min(made, key=_how_lost)
        found.count = retry.count
        return None if found.has_failed else found

    def add(self, retry: Retry, attempt: CallAttempt) -> None:
        """Keep an attempt, in case that it is repeated."""
        attempt.body = retry.body
        self._made.append(attempt)
        if retry.key:
            self._by_key[retry.key, retry.body] = attempt

    def cancel(self) -> None:
        """Cancel what is being answered."""
        for attempt in self._made:
            attempt.cancel()


def _how_lost(attempt: CallAttempt) -> int:
    """Return 0 for the attempt whose client surely heard nothing, more where it may have."""
    if attempt.has_failed:
        return 2
    if attempt.served is None:
        return 0
    return 3 if attempt.served.is_delivered else 1
