"""The ready ReActAgent on mathematical questions, over a scripted engine."""

from __future__ import annotations

import json

import pytest
from trinity.errors import ConfigError
from trinity_testing.engines import ScriptedEngine

pytest.importorskip("agentscope", reason="pip install 'trinity-agents-agentscope[agentscope]'")


def test_P049_and_P137_a_question_gives_an_experience_for_each_call_and_a_reward(run_of) -> None:
    from trinity.common.workflows import AgentScopeReactMathWorkflow

    call = json.dumps({"name": "execute_python_code", "arguments": {"code": "print(40 + 6)"}})
    engine = ScriptedEngine(f"<tool_call>\n{call}\n</tool_call>", "It is \\boxed{46}.")

    experiences = run_of(AgentScopeReactMathWorkflow, engine)

    prompts = [engine.tokenizer.decode(e.request.prompt_token_ids) for e in engine.exchanges]
    assert "<stdout>46\n</stdout>" in prompts[1]
    assert [experience.reward for experience in experiences] == [1.0, 1.0]
    assert experiences[-1].metrics["accuracy"] == 1.0


def test_a_wrong_answer_has_no_reward(run_of) -> None:
    from trinity.common.workflows import AgentScopeReactMathWorkflow

    (experience,) = run_of(AgentScopeReactMathWorkflow, "It is \\boxed{47}.")

    assert experience.reward == 0.0


def test_a_program_that_does_not_end_is_stopped(run_of) -> None:
    from trinity.common.workflows import AgentScopeReactMathWorkflow

    endless = {"name": "execute_python_code", "arguments": {"code": "while True: pass"}}
    engine = ScriptedEngine(f"<tool_call>\n{json.dumps(endless)}\n</tool_call>", "\\boxed{46}")

    experiences = run_of(AgentScopeReactMathWorkflow, engine, tool_timeout_s=1.0)

    prompts = [engine.tokenizer.decode(e.request.prompt_token_ids) for e in engine.exchanges]
    assert "exceeded the timeout of 1.0 seconds" in prompts[1]
    assert len(experiences) == 2


def test_an_argument_that_is_misspelt_is_refused_before_a_run() -> None:
    from trinity.common.workflows import AgentScopeReactMathWorkflow

    with pytest.raises(ConfigError, match=r"max_iter is unknown .* Did you mean 'max_iters'"):
        AgentScopeReactMathWorkflow.check_arguments({"max_iter": 3})
