"""A chat by OpenAI's client: what it hears, and what is recorded of it."""

import asyncio
import socket

import openai
import pytest
from trinity.common.models.settings import ModelSettings, Sampling
from trinity.common.ports import RunKey
from trinity.errors import ConfigError
from trinity_serve.endpoint.chat import sampling_of
from trinity_testing.engines import ScriptedEngine

HELLO = [{"role": "user", "content": "hello"}]


def test_the_client_hears_the_engine_and_the_run_holds_its_ids(model_of):
    engine = ScriptedEngine("good day")
    model = model_of(engine)
    client = model.get_openai_client()

    reply = client.chat.completions.create(model=client.model_path, messages=HELLO)
    [experience] = model.extract_experience_from_history()

    [exchange] = engine.exchanges
    assert isinstance(client, openai.OpenAI)
    assert reply.choices[0].message.content == "good day"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.id == "chatcmpl-3/7/0-0"
    prompt, said = exchange.request.prompt_token_ids, exchange.completions[0].token_ids
    assert experience.tokens.tolist() == [*prompt, *said]
    assert experience.prompt_length == len(prompt)
    assert experience.logprobs.tolist() == pytest.approx(exchange.completions[0].logprobs)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(prompt), len(said))


def test_what_a_client_sets_reaches_the_engine_and_a_seed_of_0_is_one(model_of):
    body = {"presence_penalty": 0.5, "frequency_penalty": -1, "logit_bias": {"7": 2}, "seed": 0}
    sampling = Sampling.of(sampling_of(body))
    request = sampling.request((1,), key=RunKey(), settings=ModelSettings())
    engine = ScriptedEngine("good day")
    client = model_of(engine).get_openai_client()
    client.chat.completions.create(model="scripted", messages=HELLO, seed=7)

    assert (request.presence_penalty, request.frequency_penalty) == (0.5, -1.0)
    assert (request.logit_bias, request.seed) == (((7, 2.0),), "0")
    assert engine.exchanges[0].request.seed == "7"


def test_the_runs_own_client_gets_token_ids_and_logprobs_without_asking(model_of):
    engine = ScriptedEngine("good day", "fine", "no")
    client = model_of(engine).get_openai_client()

    reply = client.chat.completions.create(model="scripted", messages=HELLO)
    same = client.with_options(max_retries=0).chat.completions.create(
        model="scripted", messages=HELLO
    )
    body = {"return_token_ids": False}
    bare = client.chat.completions.create(
        model="scripted", messages=HELLO, logprobs=False, extra_body=body
    )

    first = engine.exchanges[0]
    assert reply.prompt_token_ids == list(first.request.prompt_token_ids)
    assert reply.choices[0].token_ids == list(first.completions[0].token_ids)
    logprobs = [one.logprob for one in reply.choices[0].logprobs.content]
    assert logprobs == pytest.approx(first.completions[0].logprobs)
    assert same.choices[0].token_ids
    assert not hasattr(bare, "prompt_token_ids")
    assert bare.choices[0].logprobs is None


def test_a_chat_that_goes_on_is_prompted_with_the_recorded_ids(model_of):
    engine = ScriptedEngine("good day", "fine")
    model = model_of(engine)
    client = model.get_openai_client()
    first = client.chat.completions.create(model="scripted", messages=HELLO)

    said = first.choices[0].message.model_dump(exclude_none=True)
    messages = [*HELLO, said, {"role": "user", "content": "how are you?"}]
    client.chat.completions.create(model="scripted", messages=messages)
    one, two = model.extract_experience_from_history()

    assert two.tokens.tolist()[: len(one.tokens)] == one.tokens.tolist()
    assert two.info["continues"] == one.info["request"] == "0-0"
    assert (one.eid.step, two.eid.step) == (0, 1)


def test_an_async_client_asks_many_times_at_once(model_of):
    model = model_of(ScriptedEngine("yes", repeat=True))

    async def ask() -> list[str]:
        client = model.get_openai_async_client()
        asked = [client.chat.completions.create(model="scripted", messages=HELLO) for _ in "1234"]
        return [one.choices[0].message.content for one in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == ["yes"] * 4
    assert len(model.extract_experience_from_history()) == 4


def test_what_the_server_writes_leaves_at_once(room, model_of):
    client = model_of("good day").get_openai_client()
    client.chat.completions.create(model="scripted", messages=HELLO)

    connections = room._server._server.server_state.connections
    sockets = [one.transport.get_extra_info("socket") for one in connections]
    # Without TCP_NODELAY the second write of a reply waits 40 ms for the client's acknowledgement.
    assert sockets
    assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in sockets)


def test_without_the_switch_the_error_names_it(model_of):
    model = model_of("", enable_openai_api=False)

    with pytest.raises(ConfigError, match=r"explorer\.rollout_model\.enable_openai_api: true"):
        model.get_openai_client()
