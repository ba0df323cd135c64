"""Models beside the trained one, and how a server is found and called."""

import logging
import socket

import openai
import pytest
from trinity.common.config import Config
from trinity.common.config.inference_model import ExternalModelConfig, InferenceModelConfig
from trinity.common.models.auxiliary import AuxiliaryModel, auxiliary_client, wrapper_of
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.common.workflows import Workflow
from trinity.errors import ConfigError, ModelError
from trinity.explorer.requests import requests_of
from trinity.explorer.runner import RolloutAttempt, Runner
from trinity.extend import get_manager
from trinity.runtime import auxiliary
from trinity.runtime.assembly import make_endpoints
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format


class AsksItsJudge(Workflow):
    """Is judged by another model, which it asks by its own endpoint."""

    def run(self):
        client = self.model.get_openai_client()
        self.models = [one.id for one in client.models.list().data]
        said = said_by(client, "2 + 2?")
        score = said_by(client, said, model="judge:strict")
        [experience] = self.model.extract_experience_from_history()
        experience.reward = float(score)
        return [experience]


def an_external(name=None, model_name=None):
    api = ExternalModelConfig(
        enable=True, base_url_env="JUDGE_URL", api_key_env="JUDGE_KEY", model_name=model_name
    )
    return InferenceModelConfig(name=name, external_model_config=api)


def said_by(client, text, model=None):
    messages = [{"role": "user", "content": text}]
    reply = client.chat.completions.create(model=model or client.model_path, messages=messages)
    return reply.choices[0].message.content


@pytest.fixture
def judge(model_of):
    """Return a model that is beside the trained one, and its engine."""
    engine = ScriptedEngine("0.75", "0.25", repeat=True)
    model = model_of(engine, name="judge", model_path="a-judge")
    return AuxiliaryModel(model=model, engines=(engine,))


def test_a_judge_is_asked_by_its_name_on_the_runs_own_key(model_of, judge):
    model = model_of("4")
    runner = Runner(model, auxiliary_models=[judge])
    task = a_task(workflow=AsksItsJudge)
    [request] = requests_of(task, batch="3", number=7, max_repeat_times=None)

    [experience] = runner.run(RolloutAttempt(request))
    runner.close()

    assert experience.reward == 0.75
    assert experience.response_text == "4"  # the judge's reply is not recorded
    [engine] = judge.engines
    assert len(engine.exchanges) == 1


def test_the_models_of_a_key_are_listed_the_runs_own_first(model_of, judge):
    model = model_of("4", served_model_name="tiny")
    model.beside = {"judge": wrapper_of(judge.for_run(RunKey()))}
    client = model.get_openai_client()

    names = [one.id for one in client.models.list().data]

    assert (client.model_path, names) == ("tiny", ["scripted", "tiny", "judge"])
    assert said_by(client, "hi", model="tiny:planner") == "4"


def test_the_end_of_a_run_ends_its_judge_too(model_of, judge, asked, chat):
    model = model_of("4")
    wrapper = wrapper_of(judge.for_run(RunKey()))
    model.beside = {"judge": wrapper}
    endpoints = [model.endpoint(), wrapper.endpoint()]
    before = [asked(one, chat(model="judge"))[0] for one in endpoints]
    model.close_endpoints()
    wrapper.close_endpoints()

    after = [asked(one, chat(model="judge"))[0] for one in endpoints]

    assert (before, after) == ([200, 200], [409, 409])


def test_a_configured_judge_is_known_not_to_be_the_trained_model(monkeypatch):
    monkeypatch.setattr(auxiliary, "make_engine", lambda *given, **named: ScriptedEngine(""))
    monkeypatch.setattr(ChatFormat, "load", lambda *given, **named: script_chat_format())
    config = Config()
    config.explorer.auxiliary_models = [InferenceModelConfig(model_path="judge")]

    [model] = make_auxiliary_models(config, None, endpoints=None)

    assert not model.model.for_run(RunKey()).settings.is_trained
    model.close()


def test_an_external_model_is_a_plain_client_of_its_address(model_of, monkeypatch):
    elsewhere = model_of("fine").endpoint()
    monkeypatch.setenv("JUDGE_URL", elsewhere.base_url)
    monkeypatch.setenv("JUDGE_KEY", elsewhere.key)
    config = Config()
    config.explorer.auxiliary_models = [an_external(model_name="scripted")]

    [model] = make_auxiliary_models(config, None, endpoints=None)
    client = model.for_run(RunKey())
    said = said_by(client, "how is it?")
    wrapper = wrapper_of(client)
    assert (wrapper.config.name, wrapper.model_config.model_path) == (None, "scripted")
    assert wrapper.generate_kwargs == {"temperature": 1.0, "top_p": 1.0}
    with pytest.raises(ModelError, match="gives texts only"):
        wrapper.chat([])
    model.close()

    assert (said, client.model_path) == ("fine", "scripted")
    assert isinstance(auxiliary_client(client, is_async=False), openai.OpenAI)
    assert isinstance(auxiliary_client(client, is_async=True), openai.AsyncOpenAI)


def test_a_wrapper_says_by_published_names_how_a_client_is_to_ask_it(model_of):
    model = model_of("", name="judge", temperature=0.5, max_response_tokens=7, enable_thinking=True)

    assert (model.config.name, model.model_config.temperature) == ("judge", 0.5)
    assert model.generate_kwargs == {
        "temperature": 0.5,
        "top_p": 1.0,
        "max_tokens": 7,
        "extra_body": {"chat_template_kwargs": {"enable_thinking": True}},
    }
    client = model.get_openai_client()
    messages = [{"role": "user", "content": "hello"}]
    client.chat.completions.create(model="judge", messages=messages, **model.generate_kwargs)


def test_an_address_that_the_environment_does_not_hold_is_named(golden):
    config = Config()
    config.explorer.auxiliary_models = [an_external(name="judge", model_name="m")]

    with pytest.raises(ConfigError) as raised:
        make_auxiliary_models(config, None, endpoints=None)

    golden(str(raised.value), "endpoint_external_unset")


def test_a_server_listens_where_it_is_told_and_is_found_on_this_machine(model_of, asked):
    config = Config()
    config.explorer.rollout_model.enable_openai_api = True
    config.explorer.listen_address = "0.0.0.0"
    room = make_endpoints(config, get_manager())

    endpoint = room.open(model_of("x")).endpoint()
    status, _ = asked(endpoint, None, "/health")
    room.close()

    assert endpoint.base_url.startswith("http://127.0.0.1:")
    assert status == 200


def test_by_default_nobody_else_on_the_network_is_answered(model_of):
    config = Config()
    config.explorer.rollout_model.enable_openai_api = True
    room = make_endpoints(config, get_manager())
    room.open(model_of("x"))
    host, port = room._server.host, room._server.port
    room.close()

    assert host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, port), timeout=1):
        pass


def test_a_line_of_the_log_names_run_call_and_agent(caplog):
    room = EndpointHost(logs_requests=True)
    settings = ModelSettings(model_path="scripted", max_response_tokens=99, enable_openai_api=True)
    key, engine = RunKey(batch="3", task=7), ScriptedEngine("one", "two")
    model = ModelWrapper(engine, script_chat_format(), settings, key=key, endpoints=room)
    client = model.get_openai_client().with_options(max_retries=0)
    first = [{"role": "user", "content": "hi"}]
    further = [{"role": "assistant", "content": "one"}, {"role": "user", "content": "and?"}]

    with caplog.at_level(logging.INFO, logger="trinity"):
        client.chat.completions.create(model="scripted:planner", messages=first)
        client.chat.completions.create(model="scripted", messages=[*first, *further])
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="scripted", messages=first, n=0)
    room.close()

    lines = [line for line in caplog.messages if line.startswith("run ")]
    assert lines[0].startswith("run 3/7/0: call 0-0 of scripted:planner by planner: ")
    assert lines[0].endswith(" prompt tokens, 4 sampled, stop")
    assert lines[1].endswith(" 4 sampled, stop, continues 0-0")
    assert lines[2].startswith("run 3/7/0: refused a call, 400: n is 0; give a whole number")
