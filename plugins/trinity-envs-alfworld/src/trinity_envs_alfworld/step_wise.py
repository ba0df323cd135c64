"""Let the model act in a household; each step is an experience of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.workflows.recorded_env import recorded
from trinity.common.workflows.step_wise_workflow import RewardPropagationWorkflow

from trinity_envs_alfworld.prompt import AlfWORLD_SYSTEM_PROMPT, format_observation, parse_action
from trinity_envs_alfworld.settings import check_arguments, environment_of
from trinity_envs_alfworld.trial_games import TrialGames
from trinity_envs_alfworld.workflow import UNFINISHED_REWARD, report_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

    from trinity_envs_alfworld.env import AlfworldEnv

__all__ = ["StepWiseAlfworldWorkflow"]


class StepWiseAlfworldWorkflow(RewardPropagationWorkflow):
    """Does what ``AlfworldWorkflow`` does; every step gets the reward of the play.

    Attributes:
        env: the game; None before the first step and after the last.
        observation: what the model sees next.
        memory: the conversation so far.
        done: whether the game is won.
        final_reward: of the play.
    """

    can_reset = True
    conformance_args = TrialGames()
    env: AlfworldEnv | None = None
    observation = ""
    done = False
    final_reward = UNFINISHED_REWARD
    _num_round = 0

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise if no row could run with these: see ``settings.check_arguments``."""
        check_arguments(arguments)

    def step(self, step_num: int) -> bool:
        """Show the model what it sees, do what it says; return whether the game goes on."""
        env = self._started() if step_num == 0 else self._playing
        self.memory.append({"role": "user", "content": format_observation(self.observation)})
        response_text = self.model.chat(self.memory)[0].response_text or ""
        self.memory.append({"role": "assistant", "content": response_text})
        self.observation, reward, self.done, _ = env.step(parse_action(response_text))
        self._num_round = step_num
        if self.done:
            self.final_reward = reward
        return not self.done

    def reward(self, exps: list[Experience]) -> float:
        """Return the reward of the play, having noted its story in the last step."""
        report = report_of(
            self._playing, num_round=self._num_round, is_done=self.done, reward=self.final_reward
        )
        last = exps[-1]
        last.info |= report
        last.metrics |= {k: float(v) for k, v in report.items() if not isinstance(v, str)}
        self.close()
        return self.final_reward

    def env_state(self) -> object:
        """Return what the next step begins with."""
        return self.observation or "start"

    def reset(self, task: Task) -> None:
        """Become what a new instance for the task would be."""
        self.close()
        self.observation = ""
        super().reset(task)

    def close(self) -> None:
        """Give the environment back; one that hangs is killed."""
        if self.env is not None:
            self.env.close()
            self.env = None

    @property
    def _playing(self) -> AlfworldEnv:
        assert self.env is not None, "step 0 opened it"
        return self.env

    def _started(self) -> AlfworldEnv:
        env: AlfworldEnv = recorded(lambda: environment_of(self.task), self.task)
        self.env = env
        self.observation, _ = env.reset()
        self.memory = [{"role": "system", "content": AlfWORLD_SYSTEM_PROMPT}]
        self.done, self.final_reward = False, UNFINISHED_REWARD
        return env
