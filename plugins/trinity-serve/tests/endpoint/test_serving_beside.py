"""A service that answers for further models by their names."""

from __future__ import annotations

from dataclasses import replace

import openai
import pytest
from trinity.common.models.auxiliary import AuxiliaryModel
from trinity_serve.endpoint.service_frontend import ServiceFrontend
from trinity_serve.run_store import SqliteRunStore
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

KEY = "a-key-of-the-service"
ASKED = [{"role": "user", "content": "how good is it?"}]


@pytest.fixture
def store(tmp_path):
    store = SqliteRunStore(tmp_path / "serve.db")
    yield store
    store.close()


@pytest.fixture
def client(store):
    """A client of a service with a judge on two engines."""
    engines = (ScriptedEngine("7", repeat=True), ScriptedEngine("8", repeat=True))
    judge = model_over(engines[0])
    judge._base = judge._settings = replace(judge.settings, name="judge", model_path="a-judge")
    room = ServiceFrontend(host="127.0.0.1", port=0)
    beside = [AuxiliaryModel(model=judge, engines=engines)]
    served = [model_over(ScriptedEngine("a parcel"))]
    room.serve(served, store=store, keys=[KEY], logs_requests=False, beside=beside)
    room.open()
    with openai.OpenAI(base_url=f"{room.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client
    room.close()


def said_by(client, model, **headers):
    reply = client.chat.completions.create(model=model, messages=ASKED, extra_headers=headers)
    return reply.choices[0].message.content


def test_a_judge_is_asked_by_its_name_and_nothing_of_it_is_stored(client, store) -> None:
    assert [said_by(client, "judge"), said_by(client, "judge:strict")] == ["8", "7"]
    assert set(store.counts().values()) == {0}


def test_a_judge_answers_beside_a_run_that_is_over(client, store) -> None:
    run = {"X-Trinity-Run": "ticket"}
    assert said_by(client, "scripted", **run) == "a parcel"
    store.reward("ticket", 1.0, metrics={})

    with pytest.raises(openai.ConflictError):
        said_by(client, "scripted", **run)
    assert said_by(client, "judge", **run) in {"7", "8"}


def test_the_models_are_listed_and_an_unknown_one_is_told_of_them(client) -> None:
    names = [model.id for model in client.models.list().data]

    with pytest.raises(openai.NotFoundError, match="known: scripted, judge"):
        said_by(client, "jugde")
    assert names == ["scripted", "judge"]
