"""Let the model shop; each step is an experience of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.workflows.of_task import OfTask
from trinity.common.workflows.recorded_env import recorded
from trinity.common.workflows.step_wise_workflow import RewardPropagationWorkflow

from trinity_envs_webshop.failures import as_env_error
from trinity_envs_webshop.settings import EnvSettings, check_arguments, num_steps_of, session_of
from trinity_envs_webshop.workflow import (
    UNFINISHED_REWARD,
    WEBSHOP_SYSTEM_PROMPT,
    act,
    format_observation,
    report_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

    from trinity_envs_webshop.env import WebShopEnv

__all__ = ["StepWiseWebShopWorkflow"]


class StepWiseWebShopWorkflow(RewardPropagationWorkflow):
    """Does what ``WebShopWorkflow`` does; every step gets the reward of the session."""

    can_reset = True
    max_step_num: OfTask[int] = OfTask(num_steps_of)
    _env: WebShopEnv | None = None
    _observation: str
    _memory: list[dict[str, str]]

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise if no row could run with these: see ``settings.check_arguments``."""
        check_arguments(arguments)

    def step(self, step_num: int) -> bool:
        """Show the model the page, do what it says; return whether the session goes on."""
        env = self._started() if step_num == 0 else self._playing
        shown = format_observation(self._observation, env.get_available_actions())
        self._memory = [*self._memory, {"role": "user", "content": shown}]
        response_text = self.model.chat(self._memory)[0].response_text or ""
        self._memory.append({"role": "assistant", "content": response_text})
        self._observation, reward, self._is_done = act(env, response_text)
        self._num_round = step_num
        if self._is_done:
            self._final_reward = reward
        return not self._is_done

    def reward(self, exps: list[Experience]) -> float:
        """Return the reward of the session, having noted its story in the last step."""
        report = report_of(self._playing, num_round=self._num_round, is_done=self._is_done)
        last = exps[-1]
        last.info |= report
        numbers = {name: float(v) for name, v in report.items() if not isinstance(v, str)}
        last.metrics = {**(last.metrics or {}), **numbers}
        self.close()
        return self._final_reward

    def env_state(self) -> object:
        """Return the page that the next step begins on."""
        return self._env.observation if self._env is not None else "start"

    def reset(self, task: Task) -> None:
        """Become what a new instance for the task would be."""
        self.close()
        super().reset(task)

    def close(self) -> None:
        """Leave the shop."""
        if self._env is not None:
            self._env.close()
            self._env = None

    @property
    def _playing(self) -> WebShopEnv:
        assert self._env is not None, "step 0 opened it"
        return self._env

    def _started(self) -> WebShopEnv:
        session = session_of(self.task)
        settings = EnvSettings.of(self.task.workflow_args)
        env: WebShopEnv = recorded(lambda: settings.environment(session), self.task)
        self._env = env
        with as_env_error(f"reset({session!r})"):
            self._observation, _ = env.reset(session=session)
        self._memory = [{"role": "system", "content": WEBSHOP_SYSTEM_PROMPT}]
        self._is_done, self._final_reward, self._num_round = False, UNFINISHED_REWARD, 0
        return env
