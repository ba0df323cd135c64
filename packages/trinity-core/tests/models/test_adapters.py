"""Several adapters of a model: a workflow says which agent speaks."""

import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.errors import ModelError
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

ASKED = {"role": "user", "content": "2 + 2?"}


@pytest.fixture
def engine():
    return ScriptedEngine("4", "yes", "5", "no", repeat=True)


@pytest.fixture
def model(engine):
    settings = ModelSettings(
        model_path="m", adapters=("solver", "checker"), enable_history=True, max_model_len=4096
    )
    return ModelWrapper(engine, script_chat_format(), settings, key=RunKey(batch="3", task=7))


def test_requests_and_experiences_have_the_adapter_of_the_agent_that_speaks(model, engine) -> None:
    for name in ("solver", "checker"):
        [said] = model.adapter(name).chat([ASKED])
        assert said.info["adapter"] == name

    assert [one.request.adapter for one in engine.exchanges] == ["solver", "checker"]
    assert [one.request.key.request for one in engine.exchanges] == [0, 1]


def test_an_agent_is_one_object_in_a_run_and_another_in_the_next(model) -> None:
    first = model.adapter("solver")
    assert model.adapter("solver") is first

    model.begin_run(RunKey(batch="4"))

    assert model.adapter("solver") is not first
    assert len(model._run.endpoints) == 2


def test_a_chat_that_another_agent_goes_on_with_is_two_experiences(model) -> None:
    solver, checker = model.adapter("solver"), model.adapter("checker")
    [answer] = solver.chat([ASKED])
    chat = [ASKED, {"role": "assistant", "content": "4"}, {"role": "user", "content": "right?"}]
    [verdict] = checker.chat(chat)

    found = model.extract_experience_from_history(clear_history=False, merge="chains")
    own = checker.extract_experience_from_history()

    assert [one.info["adapter"] for one in found] == ["solver", "checker"]
    assert [len(one.logprobs) for one in found] == [len(answer.logprobs), len(verdict.logprobs)]
    assert [one.response_text for one in own] == ["yes"]
    assert [one.response_text for one in model.extract_experience_from_history()] == ["4"]


def test_a_conversation_of_an_agent_is_an_experience_of_its_adapter(model) -> None:
    solver = model.adapter("solver")
    [first] = solver.chat([ASKED])
    chat = [ASKED, {"role": "assistant", "content": first.response_text}]

    whole = solver.convert_messages_to_experience(chat)

    assert whole.info["adapter"] == "solver"
    assert whole.action_mask.any()


def test_whoever_names_no_adapter_or_an_unknown_one_is_told_the_names(model) -> None:
    with pytest.raises(ModelError, match=r"several adapters: solver, checker\. Say which agent"):
        model.chat([ASKED])
    with pytest.raises(ModelError, match=r"'solvr'\. Did you mean 'solver'\? Known: checker, sol"):
        model.adapter("solvr")


def test_a_model_with_one_adapter_has_none_to_choose(engine) -> None:
    model = ModelWrapper(engine, script_chat_format(), ModelSettings(model_path="m"))
    [said] = model.chat([ASKED])

    assert "adapter" not in said.info
    assert engine.exchanges[0].request.adapter == ""
    with pytest.raises(ModelError, match=r"Known: none\."):
        model.adapter("solver")
