"""Let the model shop; the whole session is one experience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.workflows.multi_turn_workflow import MultiTurnWorkflow
from trinity.common.workflows.of_task import OfTask
from trinity.common.workflows.recorded_env import recorded

from trinity_envs_webshop.failures import as_env_error
from trinity_envs_webshop.prompt import (
    WEBSHOP_SYSTEM_PROMPT,
    format_observation,
    parse_action,
    validate_action,
)
from trinity_envs_webshop.settings import EnvSettings, check_arguments, num_steps_of, session_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience

    from trinity_envs_webshop.env import WebShopEnv

__all__ = [
    "UNFINISHED_REWARD",
    "WEBSHOP_SYSTEM_PROMPT",
    "WebShopWorkflow",
    "act",
    "format_observation",
    "parse_action",
    "report_of",
    "validate_action",
]

UNFINISHED_REWARD = -0.1


class WebShopWorkflow(MultiTurnWorkflow):
    """Shows the model a page, does what it says, until it buys or ``max_env_steps`` is reached.

    The row's ``task_id`` is the session that the environment is reset to: an integer is the
    position of its goal. ``workflow_args`` are the fields of ``EnvSettings`` and ``ShopSettings``.
    """

    can_reset = True
    max_env_steps: OfTask[int] = OfTask(num_steps_of)

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise if no row could run with these: see ``settings.check_arguments``."""
        check_arguments(arguments)

    def run(self) -> list[Experience]:
        """Return one experience for each of ``repeat_times`` sessions."""
        session = session_of(self.task)
        settings = EnvSettings.of(self.task.workflow_args)
        env = recorded(lambda: settings.environment(session), self.task)
        return self.generate_env_inference_samples(env, session, self.repeat_times)

    def generate_env_inference_samples(
        self, env: WebShopEnv, session_id: int | str, rollout_num: int
    ) -> list[Experience]:
        """Return the experiences of that many sessions, and close the environment."""
        try:
            return [self._one_session(env, session_id) for _ in range(rollout_num)]
        finally:
            env.close()

    def _one_session(self, env: WebShopEnv, session_id: int | str) -> Experience:
        with as_env_error(f"reset({session_id!r})"):
            observation, _ = env.reset(session=session_id)
        final_reward, is_done, num_rounds = UNFINISHED_REWARD, False, 0
        memory = [{"role": "system", "content": WEBSHOP_SYSTEM_PROMPT}]
        while num_rounds < self.max_env_steps and not is_done:
            shown = format_observation(observation, env.get_available_actions())
            memory = [*memory, {"role": "user", "content": shown}]
            response_text = self.get_model_response_text(memory)
            memory.append({"role": "assistant", "content": response_text})
            observation, reward, is_done = act(env, response_text)
            final_reward = reward if is_done else final_reward
            num_rounds += 1
        report = report_of(env, num_round=num_rounds - 1, is_done=is_done)
        return self.process_messages_to_experience(memory, final_reward, report)


def act(env: WebShopEnv, response_text: str) -> tuple[str, float, bool]:
    """Return what the model sees after its reply, the reward, and whether it has bought.

    An action that the page does not allow leads to a word about it instead of a page.
    """
    action = parse_action(response_text)
    is_allowed, problem = validate_action(action, env.get_available_actions())
    if not is_allowed:
        return problem, 0.0, False
    with as_env_error(f"step({action!r}) of session {env.session_name}"):
        observation, reward, is_done, _ = env.step(action)
    return observation, reward, is_done


def report_of(env: WebShopEnv, *, num_round: int, is_done: bool) -> dict[str, Any]:
    """Return what is noted about a session; the numbers become metrics."""
    parts = env.reward_info or {}
    is_success = is_done and all(
        parts.get(name, 1.0) == 1.0 for name in ("r_type", "r_att", "r_option", "r_price")
    )
    numbers = {name: float(value) for name, value in parts.items() if name.startswith("r_")}
    return {
        "session_id": env.session_name,
        "tagger": env.tagger_name,
        "env_rounds": num_round,
        "env_done": int(is_done),
        "success": int(is_success),
        **numbers,
    }
