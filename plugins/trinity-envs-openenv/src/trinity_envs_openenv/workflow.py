"""Let the model act in an environment of OpenEnv; the whole episode is one experience."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows.multi_turn_workflow import MultiTurnWorkflow
from trinity.common.workflows.recorded_env import recorded
from trinity.errors import EnvError

from trinity_envs_openenv.acting import Acting, observed
from trinity_envs_openenv.action import NoActionError
from trinity_envs_openenv.observation import shown
from trinity_envs_openenv.server import app_of, python_for
from trinity_envs_openenv.session import RefusedError
from trinity_envs_openenv.settings import OpenEnvSettings
from trinity_envs_openenv.tools import LIST_TOOLS, answer_of, call_of, descriptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.recorded_calls import RecordedCall
    from trinity.common.workflows.task import Task

    from trinity_envs_openenv.observation import Observation

__all__ = ["OpenEnvWorkflow"]


@dataclass(kw_only=True, slots=True)
class _Episode:
    """What has happened so far."""

    rewards: list[float] = field(default_factory=list)
    num_steps: int = 0
    num_refused: int = 0
    is_done: bool = False

    def note(self, observation: Observation) -> None:
        self.num_steps += 1
        self.is_done = observation.is_done
        if observation.reward is not None:
            self.rewards.append(observation.reward)


class OpenEnvWorkflow(MultiTurnWorkflow):
    """Shows the model what the environment answers, and does what its reply says, until it is done.

    ``workflow_args`` are the fields of ``OpenEnvSettings``, ``max_env_steps`` (30), and ``tools``:
    true for an environment of tools (MCP), which the model then calls by name. The row is ``task``
    in ``template``, and ``reset`` hands keys of it to the environment's reset.
    """

    can_reset: ClassVar[bool] = True
    conformance_args: ClassVar[dict[str, Any]] = {
        "workflow_args": {
            "folder": str(Path(__file__).with_name("example")),
            "action": {"field": "message"},
        }
    }

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that no run could use.

        Raises:
            ConfigError: one is unknown, missing, or not what it must be.
            PluginError: the environment that the folder is to be served in is missing.
        """
        settings = OpenEnvSettings.of(arguments)
        if settings.folder:
            app_of(settings.folder, app=settings.app)
            python_for(settings.folder)

    def reset(self, task: Task) -> None:
        """Become what a new instance for ``task`` would be."""
        super().reset(task)
        self._env = None

    _env: Acting | None = None

    def run(self) -> list[Experience]:
        """Return the experience of one episode.

        Raises:
            EnvError: the server or the environment failed, or gave no reward.
        """
        settings = OpenEnvSettings.of(self.task.workflow_args)
        row = settings.arguments_of_reset(self.task.raw_task)
        env: Acting = recorded(lambda: Acting(settings), self.task)
        self._env = env
        try:
            first = observed(env.reset(row))
            if first.is_done:
                raise EnvError(f"the environment at {env.url} was done at its reset.")
            messages = self._opening(settings, first)
            if settings.action is None:
                return [self._with_tools(settings, env, messages)]
            return [self._with_actions(settings, env, messages)]
        finally:
            env.close()

    def close(self) -> None:
        """Give the environment back; a step that hangs ends."""
        if self._env is not None:
            self._env.close()

    def _opening(self, settings: OpenEnvSettings, first: Observation) -> list[dict[str, Any]]:
        system = self.task.format_args.system_prompt
        text = shown(settings.template, first, row=self.task.raw_task, step=0)
        opening = [{"role": "system", "content": system}] if system else []
        return [*opening, {"role": "user", "content": text}]

    def _with_actions(
        self, settings: OpenEnvSettings, env: Acting, messages: list[dict[str, Any]]
    ) -> Experience:
        episode, rounds = _Episode(), 0
        while True:
            reply = self.get_model_response_text(messages)
            messages.append({"role": "assistant", "content": reply})
            text = self._acted(settings, env, reply, episode)
            rounds += 1
            if episode.is_done or rounds == self.max_env_steps:
                break
            messages.append({"role": "user", "content": text})
        reward, info = self._outcome(settings, episode, rounds)
        experience = self.process_messages_to_experience(messages, reward, info)
        experience.reward = reward  # the environment's, also where the context was filled
        return experience

    def _acted(self, settings: OpenEnvSettings, env: Acting, reply: str, episode: _Episode) -> str:
        """Return what the model sees after its reply; one that is no action changes nothing."""
        assert settings.action is not None
        try:
            observation = observed(env.step(dict(settings.action.action(reply))))
        except (NoActionError, RefusedError) as error:
            episode.num_refused += 1
            return str(error)
        episode.note(observation)
        return shown(settings.template, observation, row=self.task.raw_task, step=episode.num_steps)

    def _with_tools(
        self, settings: OpenEnvSettings, env: Acting, messages: list[dict[str, Any]]
    ) -> Experience:
        tools = descriptions(observed(env.step(LIST_TOOLS)), url=env.url)
        names = {tool["function"]["name"] for tool in tools}
        episode, rounds = _Episode(), 0
        while not episode.is_done and rounds < self.max_env_steps:
            reply = self._asked(messages, tools)
            messages.append(reply.parsed.message())
            rounds += 1
            for call in reply.parsed.tool_calls:
                if episode.is_done:
                    break
                if call.name in names:
                    observation = observed(env.step(call_of(call.name, call.arguments)))
                    episode.note(observation)
                    text = answer_of(observation)
                else:
                    episode.num_refused += 1
                    text = f"error: no tool is named {call.name!r}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
            if not reply.parsed.tool_calls:
                break
        reward, info = self._outcome(settings, episode, rounds)
        while messages[-1]["role"] == "tool":  # nobody answered them
            messages.pop()
        experience = self.model.convert_messages_to_experience(messages, tools)
        experience.reward = reward
        experience.info |= info
        experience.metrics |= {name: float(value) for name, value in info.items()}
        return experience

    def _asked(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> RecordedCall:
        """Return the model's reply, whose tool calls are read out of it."""
        exchanges = self.model.exchanges
        call = exchanges.send(exchanges.prompt(messages, tools=tools))
        try:
            completions = call.future.result(self.model.settings.request_timeout_s)
        except TimeoutError as error:
            call.future.cancel()
            raise self.model.no_answer() from error
        (reply,) = exchanges.replies(call, completions)
        exchanges.keep(reply)
        return reply

    def _outcome(
        self, settings: OpenEnvSettings, episode: _Episode, rounds: int
    ) -> tuple[float, dict[str, Any]]:
        """Return the reward of the episode, and what is noted about it.

        Raises:
            EnvError: it is done, and no step gave a reward.
        """
        if episode.is_done and not episode.rewards:
            raise EnvError(
                "the environment was done and no step gave a reward. Rewards are the environment's "
                "(reward of its observations)."
            )
        last = episode.rewards[-1] if episode.rewards else 0.0
        reward = sum(episode.rewards) if settings.reward == "sum" else last
        info = {
            "env_rounds": rounds,
            "env_done": int(episode.is_done),
            "env_refused": episode.num_refused,
        }
        return reward, info
