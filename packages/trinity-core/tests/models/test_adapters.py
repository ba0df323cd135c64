"""Several adapters of a model: a workflow says which agent speaks."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.common.workflows import Task
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


def test_an_agent_that_a_workflow_keeps_from_run_to_run_begins_each_as_the_model_does(
    model, engine
) -> None:
    solver = model.adapter("solver")
    solver.chat([ASKED])

    colder = Task(rollout_args={"temperature": 0.25})
    model.begin_run(RunKey(batch="4", task=9), task=colder)
    solver.chat([ASKED])

    assert model.adapter("solver") is solver
    last = engine.exchanges[-1].request
    assert (last.key.batch, last.key.task, last.temperature) == ("4", 9, 0.25)
    assert [one.response_text for one in model.extract_experience_from_history()] == ["yes"]
    assert len(model._run.endpoints) == 2


class SlowToClone(ModelWrapper):
    """Clones for two threads at the same time."""

    def clone_with_isolated_history(self):
        clone = super().clone_with_isolated_history()
        BOTH.wait(10)
        return clone


BOTH = Barrier(2)


def test_threads_that_ask_for_an_agent_at_once_get_the_same_one(model, engine) -> None:
    slow = SlowToClone(engine, script_chat_format(), model.settings)

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(slow.adapter, ["solver"] * 2))

    assert found[0] is found[1] is slow.adapter("solver")


def test_an_agent_gives_the_others_of_the_run(model) -> None:
    solver = model.adapter("solver")
    solver.adapter("checker").chat([ASKED])

    assert solver.adapter("checker") is model.adapter("checker")
    assert solver.extract_experience_from_history() == []
    assert len(model.extract_experience_from_history()) == 1


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
    with pytest.raises(ModelError, match=r"Known: none\. With fewer than two entries, ask the"):
        model.adapter("solver")
