"""AgentScope's ReActAgent in the workflows that published files name, over scripted engines."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from trinity.common.workflows import WORKFLOWS, Task
from trinity.errors import ConfigError, WorkflowError
from trinity_testing.engines import ScriptedEngine

pytest.importorskip("agentscope", reason="pip install 'trinity-agents-agentscope[agentscope]'")

SERVER = str(Path(__file__).with_name("search_server.py"))
SEARCH = "agentscope_v1_react_search_workflow"


def call(name: str, **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def shown(engine: ScriptedEngine) -> list[str]:
    return [engine.tokenizer.decode(one.request.prompt_token_ids) for one in engine.exchanges]


def answer(result: str) -> str:
    return "So: " + call("generate_response", result=result)


@pytest.mark.parametrize("name", ["agentscope_react_workflow", "as_react_workflow"])
def test_an_answer_by_structure_is_compared_with_the_truth(run_of, name) -> None:
    cls = WORKFLOWS.get(name)

    right = run_of(cls, "I think.", answer("It is \\boxed{46}."))
    (wrong,) = run_of(cls, answer("47"))

    assert [one.reward for one in right] == [1.0, 1.0]
    assert right[-1].metrics["react_memory_length"] >= 3.0
    assert wrong.reward == 0.0


def test_a_model_is_never_forced_into_a_call(run_of) -> None:
    engine = ScriptedEngine("I think.", answer("\\boxed{46}"))

    run_of(WORKFLOWS.get("agentscope_react_workflow"), engine)

    assert [one.request.structure for one in engine.exchanges] == [None, None]
    assert "generate_response" in shown(engine)[1].rpartition("I think.")[2]  # it is reminded


def test_a_kind_of_task_without_template_is_refused_and_one_of_yours_is_taken(run_of) -> None:
    from trinity.common.workflows.agentscope.react.templates import TEMPLATE_MAP

    cls = WORKFLOWS.get("agentscope_react_workflow")
    with pytest.raises(ConfigError, match="type is 'poems', for which there is no template"):
        cls.check_arguments({"type": "poems"})

    TEMPLATE_MAP["poems"] = TEMPLATE_MAP["gsm8k"]
    try:
        cls.check_arguments({"type": "poems"})
    finally:
        del TEMPLATE_MAP["poems"]


def test_the_reward_of_gsm8k_reads_the_structure_and_the_last_line_of_the_truth() -> None:
    from trinity.common.workflows.agentscope.react.templates import GSM8KRewardFn

    judge = GSM8KRewardFn()

    scores = judge(response={"result": "\\boxed{46}"}, truth="40 + 6 = 46 #### 46")
    assert scores["accuracy"] == 1.0
    assert judge(response={}, truth="46")["accuracy"] == 0.0


def test_files_for_agentscope_0_run_on_agentscope_1_with_five_calls(run_of) -> None:
    cls = WORKFLOWS.get("agentscopev0_react_math_workflow")
    code = call("execute_python_code", code="print(40 + 6)")

    experiences = run_of(cls, code, "It is \\boxed{46}.")
    endless = run_of(cls, *[code] * 5, "I give up.")

    assert [one.reward for one in experiences] == [1.0, 1.0]
    assert len(endless) == 6  # five, and what the agent sums up


def searched(model_over, *answers, judge="Correctness: YES", **arguments):
    """Return what the agent was shown, and the experiences of a run."""
    engine = ScriptedEngine(*answers)
    models = [model_over(engine), model_over(ScriptedEngine(judge))]
    task = Task(
        workflow=SEARCH,
        raw_task={"problem": "What is the capital of France?", "answer": "Paris"},
        format_args={"prompt_key": "problem", "response_key": "answer"},
        workflow_args={"search_command": [sys.executable, SERVER], **arguments},
    )
    try:
        return shown(engine), asyncio.run(task.to_workflow(models[0], models[1:]).run_async())
    finally:
        for model in models:
            model.close_endpoints()


def test_an_agent_searches_by_a_server_of_its_own_and_a_judge_compares(model_over) -> None:
    _, experiences = searched(model_over, call("look_up", query="France"), answer("Paris"))
    prompts = [one.prompt_text for one in experiences]

    assert "The capital of France is Paris. (France)" in prompts[1]
    assert [one.reward for one in experiences] == [1.0, 1.0]
    assert experiences[-1].metrics["max_turns"] == 10.0


@pytest.mark.parametrize(
    ("verdict", "reward"),
    [
        ("Correctness: NO", 0.0),
        ("Correctness: NO, the response names yesterday's winner.", 0.0),
        ("Is the correctness in doubt? Yes: the cities differ.\nCorrectness: NO", 0.0),
        ("Correctness: YES or NO? The cities are the same.\n**Correctness:** yes", 1.0),
    ],
)
def test_the_last_verdict_of_the_judge_is_the_reward(model_over, verdict, reward) -> None:
    _, (experience,) = searched(model_over, answer("Rome"), judge=verdict)

    assert experience.reward == reward


def test_the_metrics_of_a_run_stay_where_its_last_call_is_too_long(model_over) -> None:
    replies = (call("look_up", query="France"), answer("Paris"))
    _, (first, second) = searched(model_over, *replies)
    assert len(first.tokens) < len(second.tokens)

    _, (kept,) = searched(model_over, *replies, max_model_tokens=len(first.tokens))

    assert kept.metrics["accuracy"] == kept.reward == 1.0
    assert kept.metrics["react_turns"] == second.metrics["react_turns"]


def test_what_is_too_long_is_left_out(model_over) -> None:
    _, experiences = searched(model_over, answer("Paris"), max_model_tokens=10)

    assert experiences == []


def test_a_search_server_that_cannot_start_is_a_failed_run(model_over) -> None:
    with pytest.raises(WorkflowError, match="ReActAgent raised"):
        searched(model_over, "?", search_command=[sys.executable, "-c", "raise SystemExit(1)"])


def test_a_search_without_its_key_or_its_judge_is_refused(model_over, monkeypatch) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    cls = WORKFLOWS.get(SEARCH)

    with pytest.raises(ConfigError, match="needs the environment variable TAVILY_API_KEY"):
        cls.check_arguments({"search_client_type": "tavily"})
    with pytest.raises(ConfigError, match="search_client_type is 'bing'"):
        cls.check_arguments({"search_client_type": "bing"})
    monkeypatch.setenv("TAVILY_API_KEY", "key")
    cls.check_arguments({"search_client_type": "tavily"})
    with pytest.raises(ConfigError, match=r"its judge is explorer\.auxiliary_models\[0\]"):
        cls(task=Task(workflow=cls), model=model_over(ScriptedEngine()))


def test_a_walk_over_the_lake_is_an_experience_for_each_reply(run_of, model_over) -> None:
    cls = WORKFLOWS.get("examples.agentscope_frozenlake.workflow.FrozenLakeWorkflow")
    engine = ScriptedEngine("```Down```", "I stay.", "```Right```")
    task = Task(workflow=cls, workflow_args={"desc": ["SH", "FG"]})
    model = model_over(engine)

    experiences = asyncio.run(cls(task=task, model=model).run_async())
    model.close_endpoints()

    assert [one.reward for one in experiences] == [1.0] * 3
    last = experiences[-1].metrics
    assert (last["env_steps"], last["env_done"], last["final_reward"]) == (3.0, 1.0, 1.0)
    assert "did not move you" in shown(engine)[2]


def test_the_published_modules_have_their_names() -> None:
    from trinity.common.workflows.agentscope.react.react_agent import AgentScopeReActAgent
    from trinity.common.workflows.agentscope.react.react_workflow import AgentScopeReActWorkflow
    from trinity.common.workflows.envs.agentscope.agentscopev0_react_workflow import (
        AgentScopeV0ReactMathWorkflow,
    )
    from trinity.common.workflows.envs.agentscope.agentscopev1_search_workflow import (
        AgentScopeV1ReactSearchWorkflow,
    )

    assert AgentScopeReActAgent.__name__ == "AgentScopeReActAgent"
    assert WORKFLOWS.get("as_react_workflow") is AgentScopeReActWorkflow
    assert WORKFLOWS.get("agentscopev0_react_math_workflow") is AgentScopeV0ReactMathWorkflow
    assert WORKFLOWS.get(SEARCH) is AgentScopeV1ReactSearchWorkflow
