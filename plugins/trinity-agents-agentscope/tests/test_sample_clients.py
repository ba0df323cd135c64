"""Three clients as agents have them: the plain SDK, a schema by parse(), a stream with usage."""

from __future__ import annotations

import asyncio

import pytest
from packaging.version import Version
from pydantic import BaseModel
from trinity_testing.engines import ScriptedEngine

pytest.importorskip("agentscope", reason="pip install 'trinity-agents-agentscope[agentscope]'")

import agentscope
from trinity_agents_agentscope.chat_models import run_models

ASKED = [{"role": "user", "content": [{"type": "text", "text": "What is 40 + 6 ?"}]}]


class Answer(BaseModel):
    value: int


def test_the_plain_sdk_gets_the_reply_its_logprobs_and_its_ids(model_over) -> None:
    engine = ScriptedEngine("46")
    model = model_over(engine)
    client = model.get_openai_client()

    reply = client.chat.completions.create(
        model=client.model_path,
        messages=ASKED,
        logprobs=True,
        extra_body={"return_token_ids": True},
    )
    model.close_endpoints()

    (completion,) = engine.exchanges[0].completions
    assert reply.choices[0].message.content == "46"
    assert reply.choices[0].token_ids == list(completion.token_ids)
    assert [one.logprob for one in reply.choices[0].logprobs.content] == list(completion.logprobs)


def test_a_schema_is_refused_and_agentscope_goes_on_with_a_tool(model_over) -> None:
    """Its newest release also leaves the forced choice out, which an engine may refuse too."""
    if Version(agentscope.__version__) < Version("1.0.21"):
        pytest.skip("agentscope 1.0.21 is the first that goes on without a forced choice")
    call = '{"name": "generate_structured_output", "arguments": {"value": 46}}'
    model = model_over(ScriptedEngine(f"<tool_call>\n{call}\n</tool_call>"))

    async def ask():
        async with run_models(model, auxiliary=(), sampling={}) as (chat, _):
            return await chat(ASKED, structured_model=Answer)

    reply = asyncio.run(ask())

    (experience,) = model.extract_experience_from_history()
    model.close_endpoints()
    assert reply.metadata == {"value": 46}
    assert experience.response_text.startswith("<tool_call>")


def test_a_stream_ends_with_the_usage(model_over) -> None:
    model = model_over(ScriptedEngine("46"))
    client = model.get_openai_client()

    chunks = list(
        client.chat.completions.create(
            model=client.model_path,
            messages=ASKED,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    (experience,) = model.extract_experience_from_history()
    model.close_endpoints()

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "46"
    assert chunks[-1].usage.completion_tokens == len(experience.tokens) - experience.prompt_length
