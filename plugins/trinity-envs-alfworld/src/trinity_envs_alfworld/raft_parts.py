"""What classes that derive from the RAFT workflow call of it, under the published names."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.of_task import OfTask
from trinity.common.workflows.recorded_env import recorded

from trinity_envs_alfworld.raft_utils import create_alfworld_environment, get_jinja_env
from trinity_envs_alfworld.settings import environment_of

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

    from trinity_envs_alfworld.env import AlfworldEnv
    from trinity_envs_alfworld.raft import Play

__all__ = ["RAFTParts"]

Messages = list[dict[str, str]]
Attempt = tuple[Messages, float, bool, int, Messages]  # ends with what was seen and said each step


def _game_of(task: Task) -> str:
    return task.task_desc or str(task.raw_task.get("game_file", ""))


class RAFTParts:
    """The texts, the sampling and the attempts of a RAFT workflow, for a class that awaits them.

    A class that defines ``run_async`` is awaited, and what these return is what it had published;
    what the engine or the game raises is raised.
    """

    task: Task
    game_file_path: OfTask[str] = OfTask(_game_of)
    is_eval: OfTask[bool] = OfTask(lambda task: task.is_eval)
    temperature: OfTask[float | None] = OfTask(lambda task: task.rollout_args.temperature)
    top_p: OfTask[float | None] = OfTask(lambda task: task.rollout_args.top_p)
    top_k: OfTask[int | None] = OfTask(lambda task: task.rollout_args.top_k)
    max_tokens: OfTask[int | None] = OfTask(lambda task: task.rollout_args.max_tokens)

    @cached_property
    def jinja_env(self) -> Environment:
        """Return the texts; see ``RAFT_utils.get_jinja_env``."""
        return get_jinja_env()

    @property
    def alfworld_system_template(self) -> Template:
        """Return the system prompt."""
        return self.jinja_env.get_template("alfworld_system.j2")

    def create_environment(self, game_file: str) -> AlfworldEnv:
        """Return the environment of a game; the task's own as its ``workflow_args`` say."""

        def made() -> AlfworldEnv:
            if game_file == _game_of(self.task):
                return environment_of(self.task)
            return create_alfworld_environment(game_file)

        env: AlfworldEnv = recorded(made, self.task)
        return env

    async def run_single_rollout(self, env: AlfworldEnv) -> Attempt:
        """Return a play: its messages, the reward, whether it is over, its steps, and each step."""
        play = await self._awaited(env)
        return play.messages, play.reward, play.done, play.num_steps, _steps_of(play)

    async def eval_alfworld(self) -> list[Experience]:
        """Return the conversation of one play, whatever came of it."""
        own: Any = self  # Any: the workflow that this is a part of
        env = self.create_environment(self.game_file_path)
        try:
            return [own._imitated(await self._awaited(env), env)]
        finally:
            env.close()

    async def _execute_first_attempt(self) -> tuple[object, ...]:
        """Return a play as :meth:`run_single_rollout`, whether it was won, and in whole replies."""
        env = self.create_environment(self.game_file_path)
        try:
            play = await self._awaited(env)
        finally:
            env.close()
        attempt = (play.messages, play.reward, play.done, play.num_steps, _steps_of(play))
        return *attempt, play.done and play.reward >= 1, play.is_whole

    async def _awaited(self, env: AlfworldEnv) -> Play:
        own: Any = self  # Any: the workflow that this is a part of
        play: Play = await asyncio.to_thread(own._played, env)
        return play


def _steps_of(play: Play) -> Messages:
    said = [message["content"] for message in play.messages if message["role"] == "assistant"]
    return [
        {"observation": seen, **asdict(reply), "full_response": text}
        for seen, reply, text in zip(play.observations, play.replies, said, strict=True)
    ]
