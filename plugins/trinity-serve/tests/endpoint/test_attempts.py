"""Which attempt a repeated call joins."""

from __future__ import annotations

import asyncio
import gc
import weakref

from trinity_serve.endpoint.attempts import CallAttempt, CallAttempts
from trinity_serve.endpoint.chat import ChatCompletion, Retry
from trinity_serve.endpoint.http import Http

SERVED = ChatCompletion(created=0, replies=())


def test_a_retry_does_not_join_an_attempt_that_is_being_given_up() -> None:
    async def retry_while_the_first_client_goes_away() -> CallAttempt | None:
        async def answer() -> ChatCompletion:
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(0.05)  # the engine hears that nobody waits

        attempts, attempt = CallAttempts(), CallAttempt(asyncio.create_task(answer()), 0)
        attempts.add(Retry(body=b"hello", count=0, key=""), attempt)
        client = asyncio.create_task(attempt.reply())
        await asyncio.sleep(0.01)
        client.cancel()
        await asyncio.sleep(0.01)
        assert not attempt.task.done()
        return attempts.find(Retry(body=b"hello", count=1, key=""))

    assert asyncio.run(retry_while_the_first_client_goes_away()) is None


def test_an_attempt_that_has_ended_keeps_its_answer_alone() -> None:
    async def asked_again() -> None:
        async def answer() -> ChatCompletion:
            return SERVED

        task = asyncio.create_task(answer())
        attempts, attempt = CallAttempts(), CallAttempt(task, 0)
        attempts.add(Retry(body=b"hello"), attempt)
        assert await attempt.reply() is SERVED
        assert attempt.task is None

        again = attempts.find(Retry(body=b"hello", count=1))
        assert again is attempt
        assert await again.reply() is SERVED
        assert attempts.find(Retry(body=b"hello", count=2)) is attempt
        assert attempts.find(Retry(body=b"other", count=1)) is None
        attempts.cancel()

    asyncio.run(asked_again())


def test_a_request_that_is_answered_is_gone_at_once() -> None:
    async def answered() -> None:
        async def receive():
            await asyncio.Event().wait()

        http = Http({"headers": []}, receive, None)
        async with http.while_connected():
            pass
        gone = weakref.ref(http)
        del http
        for _ in range(5):
            await asyncio.sleep(0)  # what looked after its client ends
        assert gone() is None

    gc.disable()
    try:
        asyncio.run(answered())
    finally:
        gc.enable()
