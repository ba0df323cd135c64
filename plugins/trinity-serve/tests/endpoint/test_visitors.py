"""The configured ``api_key``: one more key, on this machine, of no run."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import openai
import pytest
from trinity.common.config import Config
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Endpoint, RunKey
from trinity.engines.lockstep import is_first
from trinity.extend import get_manager
from trinity.runtime.assembly import make_endpoints
from trinity_serve.endpoint.keys import KeyRing
from trinity_serve.endpoint.server import EndpointHost
from trinity_serve.endpoint.visitors import Visitors
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

KEY = "look-at-it"
SETTINGS = ModelSettings(
    model_path="scripted", max_model_len=4096, max_response_tokens=512, enable_openai_api=True
)


@pytest.fixture
def run():
    """A run whose server has the key, and what its engine was asked."""
    rollout = {"enable_openai_api": True, "api_key": KEY}
    room = make_endpoints(Config(explorer={"rollout_model": rollout}), get_manager())
    engine = ScriptedEngine("one", "two", "three")
    requests = []
    engine.before_answer = requests.append
    key = RunKey(batch="3", task=7)
    model = ModelWrapper(engine, script_chat_format(), SETTINGS, key=key, endpoints=room)
    yield model, requests, model.endpoint()
    model.close_endpoints()
    room.close()


def test_the_key_asks_the_model_and_no_run_records_it(run, asked, chat) -> None:
    model, requests, endpoint = run
    visitor = replace(endpoint, key=KEY)

    status, body = asked(visitor, chat(temperature=0.25))
    assert (status, body["choices"][0]["message"]["content"]) == (200, "one")
    assert requests[-1].temperature == 0.25  # as it was asked for
    assert model.extract_experience_from_history() == []
    assert model.num_served == 0

    assert asked(endpoint, chat())[0] == 200
    assert [e.response_text for e in model.extract_experience_from_history()] == ["two"]


def test_each_call_is_a_run_of_its_own_so_equal_ones_are_sampled_differently(
    run, asked, chat
) -> None:
    _, requests, endpoint = run
    visitor = replace(endpoint, key=KEY)
    for _ in range(2):
        asked(visitor, chat())
    assert len({request.key for request in requests}) == 2


def test_the_key_lasts_longer_than_the_run_and_plain_clients_take_it(run, chat) -> None:
    model, _, endpoint = run
    model.end_run()
    client = openai.OpenAI(base_url=endpoint.base_url, api_key=KEY, max_retries=0)
    assert [one.id for one in client.models.list()] == ["scripted"]
    assert client.chat.completions.create(**chat()).choices[0].message.content == "one"
    client.close()


def test_a_judge_that_a_workflow_asks_later_is_not_what_the_key_asks(run, asked, chat) -> None:
    model, requests, endpoint = run
    opener = model._endpoints.opener
    settings = replace(SETTINGS, model_path="judge", is_trained=False)
    judge = ModelWrapper(ScriptedEngine("judged"), script_chat_format(), settings, endpoints=opener)
    of_run = judge.for_run(RunKey(batch="3", task=8))
    of_run.endpoint()

    status, body = asked(replace(endpoint, key=KEY), chat())

    assert (status, body["choices"][0]["message"]["content"]) == (200, "one")
    assert len(requests) == 1
    of_run.close_endpoints()


def test_a_call_is_no_first_request_so_no_request_of_a_run_waits_for_it(run, asked, chat) -> None:
    _, requests, endpoint = run
    asked(replace(endpoint, key=KEY), chat())
    assert not is_first(requests[-1].key)


@pytest.mark.parametrize("given", ["", "EMPTY", "look-at-i", "löök"])
def test_other_keys_are_refused(run, asked, chat, given) -> None:
    status, body = asked(replace(run[2], key=given.encode().decode("latin-1")), chat())
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("key", ["EMPTY", ""])
def test_without_a_key_of_its_own_a_server_lets_nobody_in(key, asked, chat) -> None:
    room = EndpointHost(api_key=key)
    model = ModelWrapper(ScriptedEngine("one"), script_chat_format(), SETTINGS, endpoints=room)
    endpoint = model.endpoint()
    assert asked(Endpoint(base_url=endpoint.base_url, key=key, model="x"), chat())[0] == 401
    model.close_endpoints()
    room.close()


@pytest.mark.parametrize(
    ("client", "is_let_in"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_the_key_is_taken_from_callers_on_this_machine_alone(client, is_let_in) -> None:
    assert (asyncio.run(_entry(client)) is not None) == is_let_in


async def _entry(client):
    visitors = Visitors(KEY)
    visitors.meet(ModelWrapper(ScriptedEngine("one"), script_chat_format(), SETTINGS))
    return visitors.entry(KEY, client=client, keys=KeyRing())
