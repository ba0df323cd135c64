"""A class that derives from the RAFT workflow and awaits its parts, as published ones do."""

from __future__ import annotations

import asyncio
import importlib

import pytest
from alfworld_runs import a_workflow
from tiny_game import WALKTHROUGH
from trinity.errors import EnvError
from trinity_testing.engines import ScriptedEngine

PATH = "trinity.common.workflows.envs.alfworld.RAFT_alfworld_workflow"
Base = importlib.import_module(PATH).RAFTAlfworldWorkflow


class Twice(Base):
    """Attempts a game, and tells the model how it went."""

    def __init__(self, model, task, auxiliary_models=None):
        super().__init__(model=model, task=task, auxiliary_models=auxiliary_models)
        self.told = self.jinja_env.get_template("second_attempt_guidance.j2")
        self.max_tokens = 99

    async def run_async(self):
        if self.is_eval:
            return await self.eval_alfworld()
        self.attempt = await self._execute_first_attempt()
        return [self.told.render(reward_feedback="It was lost.")]


def in_parts(*commands):
    return [
        f"<experience>e</experience>\n<think>t</think>\n<action>{command}</action>"
        for command in commands
    ]


def made(*commands, data, **given):
    engine = ScriptedEngine(*in_parts(*commands), repeat=True)
    return a_workflow(Twice, engine, data=data, **given)


def test_a_class_that_defines_run_async_is_awaited_and_finds_the_published_parts(data) -> None:
    workflow = made(*WALKTHROUGH, data=data)
    (said,) = asyncio.run(workflow.run_async())

    assert Twice.is_async
    assert not Base.is_async
    assert "It was lost." in said
    messages, reward, done, steps, seen, success, is_whole = workflow.attempt
    assert (reward, done, steps, success, is_whole) == (1.0, True, 4, True, True)
    assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * 4]
    assert [one["action"] for one in seen] == list(WALKTHROUGH)
    assert [one["full_response"] for one in seen] == in_parts(*WALKTHROUGH)
    assert "Your task is to" in seen[0]["observation"]
    assert workflow.game_file_path == workflow.task.task_desc
    assert (workflow.max_tokens, workflow.temperature) == (99, 1.0)


def test_a_third_same_command_ends_the_attempt(data) -> None:
    workflow = made("look", data=data)
    asyncio.run(workflow.run_async())
    _, reward, done, steps, _, success, is_whole = workflow.attempt
    assert (reward, done, steps, success, is_whole) == (0.0, False, 3, False, True)


def test_an_evaluation_gives_the_conversation(data) -> None:
    workflow = made(*WALKTHROUGH, data=data)
    workflow.is_eval = True
    (experience,) = asyncio.run(workflow.run_async())
    assert (experience.reward, experience.metrics["success"]) == (1.0, 1.0)


def test_what_the_game_raises_is_raised_and_nothing_stands_for_it(data, monkeypatch) -> None:
    workflow = made("look", data=data)

    def gone(env):
        raise EnvError("the game is gone")

    monkeypatch.setattr(workflow, "_played", gone)
    with pytest.raises(EnvError, match="the game is gone"):
        asyncio.run(workflow.run_async())
