"""AgentScope's own classes over a scripted engine: what is recorded, rewarded and refused."""

from __future__ import annotations

import importlib.metadata
import json

import pytest
from trinity.errors import ConfigError, ModelError, WorkflowError
from trinity_agents_agentscope.adapter import AgentScopeWorkflowAdapter, AgentScopeWorkflowAdapterV1
from trinity_testing.engines import ScriptedEngine

pytest.importorskip("agentscope", reason="pip install 'trinity-agents-agentscope[agentscope]'")

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg
from agentscope.model import OpenAIChatModel, TrinityChatModel
from agentscope.tool import Toolkit, ToolResponse
from agentscope.tuner import JudgeOutput, WorkflowOutput


def asked(text):
    return [{"role": "user", "content": text}]


def said(response):
    return "".join(block["text"] for block in response.content if block["type"] == "text")


async def answers(task, model):
    return WorkflowOutput(reward=1.0, response=said(await model(asked(task["question"]))))


def test_P154_the_names_are_there_and_the_metadata_names_the_releases() -> None:
    import agentscope.tuner

    requires = importlib.metadata.requires("trinity-agents-agentscope")
    assert callable(agentscope.tuner.tune)
    assert issubclass(TrinityChatModel, OpenAIChatModel)
    assert any("agentscope[tuner]<2,>=1.0.12" in text.replace(" ", "") for text in requires)


def test_P100_and_P103_the_function_gets_a_plain_row_a_chat_model_and_no_others(
    run_of,
) -> None:
    seen = []

    async def solve(task, model, auxiliary_models):
        seen.append((type(task), task["answer"], type(model), auxiliary_models))
        await model(asked(task["question"]))
        return WorkflowOutput(reward=0.0)

    run_of(AgentScopeWorkflowAdapterV1, "46", workflow_func=solve)

    assert seen == [(dict, "46", TrinityChatModel, {})]


def test_P101_two_calls_are_two_experiences_with_the_engines_ids(run_of) -> None:
    engine = ScriptedEngine("a guess", "46")

    async def solve(task, model):
        first = said(await model(asked(task["question"])))
        again = [*asked(task["question"]), {"role": "assistant", "content": first}]
        await model([*again, {"role": "user", "content": "Sure?"}])
        return WorkflowOutput(reward=0.5, metrics={"calls": 2})

    experiences = run_of(AgentScopeWorkflowAdapterV1, engine, workflow_func=solve)

    for experience, exchange in zip(experiences, engine.exchanges, strict=True):
        ids = [*exchange.request.prompt_token_ids, *exchange.completions[0].token_ids]
        assert experience.tokens.tolist() == ids
        assert experience.reward == 0.5
    assert [experience.eid.step for experience in experiences] == [0, 1]
    assert "calls" not in (experiences[0].metrics or {})
    assert experiences[1].metrics["calls"] == 2.0


def test_P102_and_P104_the_judge_gets_the_response_as_it_is_and_its_reward_wins(run_of) -> None:
    given, got = [], []

    async def solve(task, model):
        response = Msg("solver", said(await model(asked(task["question"]))), "assistant")
        given.append((task, response))
        return WorkflowOutput(reward=0.1, response=response)

    async def judge(task, response, auxiliary_models):
        got.append((task, response))
        assert auxiliary_models == {}
        return JudgeOutput(reward=float(response.get_text_content() == task["answer"]))

    functions = {"workflow_func": solve, "judge_func": judge}
    (experience,) = run_of(AgentScopeWorkflowAdapterV1, "46", **functions)

    assert experience.reward == 1.0
    assert got[0][0] is given[0][0]
    assert got[0][1] is given[0][1]


def test_P105_a_judge_without_a_reward_is_a_failure_that_names_it(run_of) -> None:
    async def judge(task, response):
        return JudgeOutput()

    with pytest.raises(WorkflowError, match=r"judge_func .*judge raised ValidationError"):
        run_of(AgentScopeWorkflowAdapterV1, "46", workflow_func=answers, judge_func=judge)


def test_P097_no_reward_anywhere_says_what_to_do(run_of) -> None:
    async def solve(task, model):
        return WorkflowOutput(response=said(await model(asked(task["question"]))))

    with pytest.raises(WorkflowError, match="gave no reward, and there is no judge function"):
        run_of(AgentScopeWorkflowAdapterV1, "46", workflow_func=solve)


def test_a_reward_without_a_call_is_no_experience(run_of) -> None:
    async def solve(task, model):
        return WorkflowOutput(reward=1.0)

    with pytest.raises(WorkflowError, match="asked its model nothing"):
        run_of(AgentScopeWorkflowAdapterV1, "46", workflow_func=solve)


def test_an_engine_that_fails_is_no_fault_of_the_function(run_of) -> None:
    engine = ScriptedEngine("46", repeat=True)

    def fail(request):
        raise ModelError("out of memory")

    engine.before_answer = fail

    with pytest.raises(ModelError, match="the last call of the agent got no reply: out of memory"):
        run_of(AgentScopeWorkflowAdapterV1, engine, workflow_func=answers)


def test_the_older_adapter_takes_a_function_that_returns_its_reward(run_of) -> None:
    async def solve(task, model):
        return float(said(await model(asked(task["question"]))) == task["answer"])

    (experience,) = run_of(AgentScopeWorkflowAdapter, "46", workflow_func=solve)

    assert experience.reward == 1.0
    with pytest.raises(WorkflowError, match="use agentscope_workflow_adapter_v1"):
        run_of(AgentScopeWorkflowAdapter, "46", workflow_func=answers)


def test_a_chat_model_with_a_thinking_switch_reaches_the_endpoint(run_of) -> None:
    async def solve(task, model):
        thinking = TrinityChatModel(model.client, enable_thinking=False)
        return WorkflowOutput(reward=1.0, response=said(await thinking(asked(task["question"]))))

    (experience,) = run_of(AgentScopeWorkflowAdapterV1, "46", workflow_func=solve)

    assert experience.reward == 1.0


def test_P103_auxiliary_models_come_by_name_and_are_not_recorded(run_of, model_over) -> None:
    judge_engine = ScriptedEngine("0.25")
    auxiliary = [model_over(judge_engine, name="judge")]

    async def judge(task, response, auxiliary_models):
        return JudgeOutput(reward=float(said(await auxiliary_models["judge"](asked(response)))))

    functions = {"workflow_func": answers, "judge_func": judge}
    (experience,) = run_of(AgentScopeWorkflowAdapterV1, "46", auxiliary=auxiliary, **functions)

    assert experience.reward == 0.25
    assert judge_engine.num_requests == 1
    auxiliary[0].close_endpoints()


def test_P108_a_react_agent_answers_after_a_tool_call(run_of) -> None:
    def add(a: int, b: int) -> ToolResponse:
        """Add two numbers.

        Args:
            a (int): one.
            b (int): the other.
        """
        return ToolResponse(content=[{"type": "text", "text": str(a + b)}])

    async def solve(task, model):
        toolkit = Toolkit()
        toolkit.register_tool_function(add)
        agent = ReActAgent(
            name="solver",
            sys_prompt="You add.",
            model=model,
            formatter=OpenAIChatFormatter(),
            toolkit=toolkit,
        )
        return WorkflowOutput(response=await agent.reply(Msg("user", task["question"], "user")))

    async def judge(task, response):
        return JudgeOutput(reward=float(response.get_text_content() == task["answer"]))

    call = json.dumps({"name": "add", "arguments": {"a": 40, "b": 6}})
    engine = ScriptedEngine(f"<tool_call>\n{call}\n</tool_call>", "46")
    functions = {"workflow_func": solve, "judge_func": judge}
    experiences = run_of(AgentScopeWorkflowAdapterV1, engine, **functions)

    prompts = [engine.tokenizer.decode(e.request.prompt_token_ids) for e in engine.exchanges]
    assert [experience.reward for experience in experiences] == [1.0, 1.0]
    assert "tool\n46" in prompts[1]


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        ({}, "workflow_args.workflow_func is None"),
        ({"workflow_func": answers, "judge_func": 3}, "workflow_args.judge_func is 3"),
    ],
)
def test_wrong_functions_are_refused_before_a_run(arguments, said_of_it) -> None:
    with pytest.raises(ConfigError, match=said_of_it):
        AgentScopeWorkflowAdapterV1.check_arguments(arguments)
