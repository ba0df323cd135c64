"""Let the model act in a household; the whole conversation is one experience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.workflows.multi_turn_workflow import MultiTurnWorkflow
from trinity.common.workflows.recorded_env import recorded

from trinity_envs_alfworld.env import AlfworldEnv, create_environment
from trinity_envs_alfworld.prompt import AlfWORLD_SYSTEM_PROMPT, format_observation, parse_action
from trinity_envs_alfworld.settings import check_arguments, environment_of
from trinity_envs_alfworld.trial_games import TrialGames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

__all__ = [
    "UNFINISHED_REWARD",
    "AlfWORLD_SYSTEM_PROMPT",
    "AlfworldWorkflow",
    "create_environment",
    "format_observation",
    "parse_action",
    "report_of",
]

UNFINISHED_REWARD = -0.1


class AlfworldWorkflow(MultiTurnWorkflow):
    """Shows the model what it sees, does what it says, until it has won or runs out of steps.

    The row's ``game_file`` is the path of a game, absolute or below ALFWORLD_DATA.
    ``workflow_args`` are the fields of ``EnvSettings``.
    """

    can_reset = True
    conformance_args = TrialGames()
    _env: AlfworldEnv | None = None

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise if no row could run with these: see ``settings.check_arguments``."""
        check_arguments(arguments)

    def run(self) -> list[Experience]:
        """Return one experience for each of ``repeat_times`` plays of the game."""
        self._env = recorded(lambda: environment_of(self.task), self.task)
        return self.generate_env_inference_samples(self._env, self.repeat_times)

    def generate_env_inference_samples(
        self, env: AlfworldEnv, rollout_num: int
    ) -> list[Experience]:
        """Return the experiences of that many plays, and close the environment.

        Args:
            env: ``reset`` begins the game anew; any object with the methods of ``AlfworldEnv``.
            rollout_num: how many times the game is played.
        """
        try:
            return [self._played(env) for _ in range(rollout_num)]
        finally:
            env.close()

    def _played(self, env: AlfworldEnv) -> Experience:
        observation, _ = env.reset()
        final_reward, is_done, num_rounds = UNFINISHED_REWARD, False, 0
        memory = [{"role": "system", "content": AlfWORLD_SYSTEM_PROMPT}]
        while num_rounds < self.max_env_steps and not is_done:
            memory = [*memory, {"role": "user", "content": format_observation(observation)}]
            response_text = self.get_model_response_text(memory)
            memory.append({"role": "assistant", "content": response_text})
            observation, reward, is_done, _ = env.step(parse_action(response_text))
            final_reward = reward if is_done else final_reward
            num_rounds += 1
        report = report_of(env, num_round=num_rounds - 1, is_done=is_done, reward=final_reward)
        return self.process_messages_to_experience(memory, final_reward, report)

    def reset(self, task: Task) -> None:
        """Become what a new instance for the task would be."""
        self.close()
        super().reset(task)

    def close(self) -> None:
        """Give the environment back; one that hangs is killed."""
        if self._env is not None:
            self._env.close()
            self._env = None


def report_of(
    env: AlfworldEnv, *, num_round: int, is_done: bool, reward: float
) -> dict[str, float | str]:
    """Return what is noted about a play; the numbers become metrics.

    ``success`` over all games, and ``success/<task type>`` over those of its type.
    """
    task_type = getattr(env, "task_type", "other")
    is_success = float(is_done and reward > 0)
    return {
        "task_type": task_type,
        "env_rounds": num_round,
        "env_done": int(is_done),
        "success": is_success,
        f"success/{task_type}": is_success,
    }
