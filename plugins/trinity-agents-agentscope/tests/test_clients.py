"""Where an argument goes that OpenAI's client does not know."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trinity_agents_agentscope.clients import with_template_settings


def a_client():
    """Return what gives back the arguments of its calls."""

    def call(**arguments):
        return arguments

    completions = SimpleNamespace(create=call, parse=call)
    return SimpleNamespace(chat=SimpleNamespace(completions=completions))


@pytest.mark.parametrize("method", ["create", "parse"])
def test_chat_template_kwargs_travel_beside_extra_body(method) -> None:
    call = getattr(with_template_settings(a_client()).chat.completions, method)

    sent = call(model="m", chat_template_kwargs={"enable_thinking": False}, extra_body={"top_k": 3})

    settings = {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 3}
    assert sent == {"model": "m", "extra_body": settings}


def test_a_call_without_them_stays_as_it_is() -> None:
    sent = with_template_settings(a_client()).chat.completions.create(model="m")

    assert sent == {"model": "m"}
