"""Tune a ReAct agent on GSM8K: ``python examples/agentscope_tuner/main.py``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg
from agentscope.tuner import JudgeOutput, WorkflowOutput, tune
from trinity.common.rewards import MathBoxedRewardFn
from trinity_agents_agentscope import Dataset

if TYPE_CHECKING:
    from agentscope.model import ChatModelBase

PROMPT = "Solve the question step by step. Give the final number inside \\boxed{}."


async def solve(task: dict[str, Any], model: ChatModelBase) -> WorkflowOutput:
    """Let a ReAct agent answer the question."""
    agent = ReActAgent(
        name="solver", sys_prompt=PROMPT, model=model, formatter=OpenAIChatFormatter()
    )
    return WorkflowOutput(response=await agent.reply(Msg("user", task["question"], role="user")))


async def judge(task: dict[str, Any], response: Msg) -> JudgeOutput:
    """Compare the boxed number with the one behind ``####``."""
    text = response.get_text_content() or ""
    truth = task["answer"].rpartition("####")[2].strip().replace(",", "")
    reward = MathBoxedRewardFn()(text, truth)["accuracy"]
    return JudgeOutput(reward=reward, metrics={"answer_characters": len(text)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=str(Path(__file__).with_name("config.yaml")))
    parser.add_argument("--data", default="openai/gsm8k", help="folder or Hugging Face id")
    options = parser.parse_args()
    name = "main" if options.data == "openai/gsm8k" else None
    tune(
        workflow_func=solve,
        judge_func=judge,
        train_dataset=Dataset(path=options.data, name=name, split="train"),
        config_path=options.config,
    )
