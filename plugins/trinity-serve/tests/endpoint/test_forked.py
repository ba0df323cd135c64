"""A process that is forked from one with an endpoint has an endpoint of its own."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.models import ModelWrapper
    from trinity_serve.endpoint.server import EndpointHost


def _answer(model: ModelWrapper) -> tuple[str, str]:
    endpoint = model.endpoint()
    client = model.get_openai_client()
    reply = client.chat.completions.create(
        model=endpoint.model, messages=[{"role": "user", "content": "hello"}]
    )
    return endpoint.base_url, str(reply.choices[0].message.content)


def test_a_forked_process_is_answered_by_a_server_of_its_own(
    model_of: Callable[..., ModelWrapper], room: EndpointHost
) -> None:
    own, said = _answer(model_of("here"))
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()

    def child() -> None:
        answers.put(_answer(model_of("there")))

    process = context.Process(target=child)
    process.start()
    other, told = answers.get(timeout=60)
    process.join(60)

    assert (said, told) == ("here", "there")
    assert other != own
    assert process.exitcode == 0
    assert _answer(model_of("still")) == (own, "still")


def test_a_forked_process_does_not_close_its_parents_server(
    model_of: Callable[..., ModelWrapper], room: EndpointHost
) -> None:
    own, _ = _answer(model_of("here"))
    process = multiprocessing.get_context("fork").Process(target=room.close)
    process.start()
    process.join(60)

    assert process.exitcode == 0
    assert _answer(model_of("still")) == (own, "still")
