"""A judge behind an API rates answers by the row's rubric."""

from __future__ import annotations

import pytest
from trinity.common.workflows import WORKFLOWS
from trinity.errors import ConfigError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

NAME = "rubric_judge_openai_workflow"
ROW = {"question": "40 + 6?", "answer": "46", "rubric": [{"description": "is 46", "weight": 5}]}


@pytest.fixture
def judge(monkeypatch):
    """Return the engine of a judge that a server of this process offers."""
    engine = ScriptedEngine('```json\n{"rating": 7}\n```', "no mark")
    model = model_over(engine)
    endpoint = model.endpoint(record=False, force_sampling=False)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", endpoint.key)
    yield engine
    model.close_endpoints()


def workflow_of(*answers, **arguments):
    named = {"judge_model_name": "scripted", **arguments}
    task = a_task(workflow=NAME, raw_task=ROW, workflow_args=named, repeat_times=len(answers))
    return task.to_workflow(model_over(ScriptedEngine(*answers)))


def test_the_mark_of_the_judge_is_the_reward(judge) -> None:
    workflow = workflow_of("46", "47")

    experiences = workflow.run()
    workflow.close()

    assert [one.reward for one in experiences] == [0.7, 0.0]
    assert [one.metrics["judge_success"] for one in experiences] == [0.5, 0.5]
    asked = [judge.tokenizer.decode(e.request.prompt_token_ids) for e in judge.exchanges]
    assert "Rubric 0 (weight: 5): is 46" in asked[0]
    assert [e.request.temperature for e in judge.exchanges] == [0.0, 0.0]


def test_the_variables_of_the_environment_may_have_other_names(judge, monkeypatch) -> None:
    import os

    for name in ("BASE_URL", "API_KEY"):
        monkeypatch.setenv(f"JUDGE_{name}", os.environ[f"OPENAI_{name}"])
        monkeypatch.delenv(f"OPENAI_{name}")
    names = {"judge_api_base_url_env": "JUDGE_BASE_URL", "judge_api_key_env": "JUDGE_API_KEY"}

    (experience,) = workflow_of("46", **names).run()

    assert experience.reward == 0.7


def test_a_judge_without_a_name_or_an_address_is_refused(monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is not set"):
        workflow_of("46")
    with pytest.raises(ConfigError, match=r"Name it in workflow_args\.judge_model_name"):
        WORKFLOWS.get(NAME).check_arguments({})


def test_an_api_that_fails_is_no_reward_of_0(judge) -> None:
    from openai import NotFoundError

    with pytest.raises(NotFoundError):
        workflow_of("46", judge_model_name="somebody else").run()
