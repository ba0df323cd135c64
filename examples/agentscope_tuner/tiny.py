"""Tune a ReAct agent that adds, on two CPU cores, after ``quickstart/prepare.py``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg
from agentscope.tuner import JudgeOutput, WorkflowOutput, tune

if TYPE_CHECKING:
    from agentscope.model import ChatModelBase


async def solve(task: dict[str, Any], model: ChatModelBase) -> WorkflowOutput:
    """Let a ReAct agent answer; its prompt is a word that the tiny model knows."""
    agent = ReActAgent(name="adder", sys_prompt="add", model=model, formatter=OpenAIChatFormatter())
    return WorkflowOutput(response=await agent.reply(Msg("user", task["question"], role="user")))


async def judge(task: dict[str, Any], response: Msg) -> JudgeOutput:
    """Reward the right sum."""
    answer = (response.get_text_content() or "").strip()
    return JudgeOutput(reward=float(answer == task["answer"]))


if __name__ == "__main__":
    config = Path(__file__).with_name("tiny.yaml")
    tune(workflow_func=solve, judge_func=judge, config_path=str(config))
