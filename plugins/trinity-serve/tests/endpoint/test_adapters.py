"""Adapters of a run's model: the name of the model in a request says which agent speaks."""

import openai
import pytest
from trinity_testing.engines import ScriptedEngine

NAMES = ("solver", "checker")


@pytest.fixture
def engine():
    return ScriptedEngine("4", "yes", "no", repeat=True)


@pytest.fixture
def model(model_of, engine):
    return model_of(engine, adapters=NAMES)


def said_by(client, model):
    messages = [{"role": "user", "content": "2 + 2?"}]
    reply = client.chat.completions.create(model=model, messages=messages)
    return reply.choices[0].message.content


def test_a_request_s_model_is_the_adapter_that_answers_it(model, engine) -> None:
    client = model.get_openai_client()
    listed = [one.id for one in client.models.list().data]

    replies = [said_by(client, name) for name in ("solver", "checker:strict")]

    assert listed == ["scripted", *NAMES]
    assert replies == ["4", "yes"]
    assert [one.request.adapter for one in engine.exchanges] == list(NAMES)
    found = model.extract_experience_from_history()
    assert [one.info["adapter"] for one in found] == list(NAMES)
    assert found[1].info["agent"] == "strict"
    assert model.num_served == 2


def test_agents_of_one_adapter_keep_the_labels_of_their_endpoints(model, asked, chat) -> None:
    for label in ("planner", "worker"):
        status, _ = asked(model.endpoint(label), chat(model="solver"))
        assert status == 200

    found = model.extract_experience_from_history()
    assert [one.info["agent"] for one in found] == ["planner", "worker"]
    assert [one.info["adapter"] for one in found] == ["solver", "solver"]


def test_the_client_of_an_adapter_asks_that_adapter(model, engine) -> None:
    client = model.adapter("checker").get_openai_client()

    said_by(client, client.model_path)

    assert client.model_path == "checker"
    assert [one.request.adapter for one in engine.exchanges] == ["checker"]
    assert len(model.extract_experience_from_history()) == 1


def test_what_is_not_to_be_recorded_is_not(model, engine) -> None:
    said_by(model.get_openai_client(record=False), "solver")

    assert len(engine.exchanges) == 1
    assert model.extract_experience_from_history() == []


def test_a_request_that_names_no_adapter_is_refused_with_the_names(model) -> None:
    client = model.get_openai_client()

    with pytest.raises(openai.BadRequestError, match="several adapters: solver, checker"):
        said_by(client, client.model_path)
    with pytest.raises(openai.NotFoundError, match="known: scripted, solver, checker"):
        said_by(client, "solvr")
