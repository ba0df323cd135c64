"""Which attempt a repeated call joins."""

from __future__ import annotations

import asyncio

from trinity.endpoint.attempts import Attempt, Attempts
from trinity.endpoint.call import Retry, Served


def test_a_retry_does_not_join_an_attempt_that_is_being_given_up() -> None:
    async def retry_while_the_first_client_goes_away() -> Attempt | None:
        async def answer() -> Served:
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(0.05)  # the engine hears that nobody waits

        attempts, attempt = Attempts(), Attempt(asyncio.create_task(answer()), 0)
        attempts.add(Retry(body=b"hello", count=0, key=""), attempt)
        client = asyncio.create_task(attempt.reply())
        await asyncio.sleep(0.01)
        client.cancel()
        await asyncio.sleep(0.01)
        assert not attempt.task.done()
        return attempts.find(Retry(body=b"hello", count=1, key=""))

    assert asyncio.run(retry_while_the_first_client_goes_away()) is None
