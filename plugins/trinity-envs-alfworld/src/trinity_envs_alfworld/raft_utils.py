"""What workflows written like the RAFT ones take from their helpers, under the published names.

Served as ``trinity.common.workflows.envs.alfworld.RAFT_utils``.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import DictLoader, Environment
from trinity.common.experience import Experience

from trinity_envs_alfworld.env import AlfworldEnv, create_environment
from trinity_envs_alfworld.raft_prompt import (
    RAFT_SYSTEM_PROMPT,
    REFLECTION,
    observed,
)
from trinity_envs_alfworld.raft_prompt import parse_response as parsed_reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.models.model import ModelWrapper

__all__ = [
    "create_alfworld_environment",
    "format_observation",
    "generate_default_empty_experience",
    "generate_reward_feedback",
    "get_jinja_env",
    "parse_response",
    "process_messages_to_experience_async",
    "save_task_data",
    "validate_response_format",
    "validate_trajectory_format",
]


def get_jinja_env() -> Environment:
    """Return the texts ``alfworld_system.j2`` and ``second_attempt_guidance.j2``.

    The second shows ``reward_feedback``, which :func:`generate_reward_feedback` gives.
    """
    texts = {
        "alfworld_system.j2": RAFT_SYSTEM_PROMPT,
        "second_attempt_guidance.j2": REFLECTION.format(outcome="{{ reward_feedback }}"),
    }
    return Environment(loader=DictLoader(texts), autoescape=False)


def create_alfworld_environment(game_file: str) -> AlfworldEnv:
    """Return the environment of a game; its observations name the commands that are possible."""
    return create_environment(game_file)


def format_observation(observation: str) -> str:
    """Return the message that shows an observation, with a hint where nothing happened."""
    return observed(observation)


def parse_response(response: str) -> dict[str, str]:
    """Return ``experience``, ``think`` and ``action`` of a reply; empty where one is missing."""
    return asdict(parsed_reply(response))


def validate_response_format(parsed: Mapping[str, str]) -> bool:
    """Return whether each part says something."""
    return all(parsed[name].strip() for name in ("experience", "think", "action"))


def validate_trajectory_format(parsed_steps: Sequence[Mapping[str, str]]) -> bool:
    """Return whether each part of each step says something."""
    return all(map(validate_response_format, parsed_steps))


def generate_default_empty_experience(
    msg: str = "Unknown error",
    info: dict[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
) -> Experience:
    """Return an experience of one masked token, of which nothing is learned.

    Args:
        msg: why; stands in ``info`` where none is given.
        info: of the experience.
        metrics: of the experience; its reward is ``metrics["reward"]``, else 0.
    """
    given = {"success": 0.0, "reward": 0.0} if metrics is None else dict(metrics)
    return Experience(
        tokens=[0, 0],  # type: ignore[arg-type]  # becomes a tensor
        prompt_length=1,
        logprobs=[0.0],  # type: ignore[arg-type]  # becomes a tensor
        action_mask=[False],  # type: ignore[arg-type]  # becomes a tensor
        reward=float(given.get("reward", 0.0)),
        info={"error_reason": msg, "rollout_failed": True} if info is None else dict(info),
        metrics=given,
    )


async def process_messages_to_experience_async(
    model: ModelWrapper, messages: list[dict[str, str]], info: dict[str, Any] | None = None
) -> Experience:
    """Return a conversation as an experience; the numbers of ``info`` are its metrics.

    Its reward is ``info["reward"]``, else 0. What fails raises; nothing stands for it.
    """
    experience = await model.convert_messages_to_experience_async(messages)
    given = dict(info or {})
    metrics = {name: float(v) for name, v in given.items() if isinstance(v, (int, float))}
    experience.info |= given
    experience.metrics = metrics
    experience.reward = metrics.get("reward", 0.0)
    return experience


def generate_reward_feedback(reward: float, steps: int, done: bool, max_env_steps: int) -> str:  # noqa: FBT001 -- published
    """Return in words how an attempt ended."""
    if done and reward >= 1:
        how = f"It did the task in {steps} turns; fewer may do"
    elif done:
        how = f"It was over after {steps} turns, and the task was done in part at most"
    elif steps >= max_env_steps:
        how = f"All {max_env_steps} turns were used and the task was not done"
    else:
        how = f"It ended after {steps} turns, and the task was not done"
    return f"{how} (reward: {reward:.3f})."


def save_task_data(  # noqa: PLR0913, PLR0917 -- published
    task_id: str,
    game_file_path: str,
    first_trajectory: list[dict[str, str]],
    first_reward: float,
    first_steps: int,
    first_success: bool,  # noqa: FBT001
    second_trajectory: list[dict[str, str]] | None,
    second_reward: float | None,
    second_steps: int | None,
    second_success: bool | None,  # noqa: FBT001
    kept_for_sft: bool,  # noqa: FBT001
    sft_dir: str,
    non_sft_dir: str,
    training_data: list[dict[str, str]] | None = None,
) -> None:
    """Write both attempts at a game into ``TASK_ID.json`` of the one folder or the other."""
    names = ("trajectory", "reward", "steps", "success")
    first = (first_trajectory, first_reward, first_steps, first_success)
    second = (second_trajectory, second_reward, second_steps, second_success)
    noted = {
        "task_id": task_id,
        "timestamp": datetime.now().astimezone().isoformat(),
        "game_file": game_file_path,
        "first_exploration": dict(zip(names, first, strict=True)),
        "second_exploration": dict(zip(names, second, strict=True)),
        "training_data": "" if training_data is None else training_data,
        "kept_for_sft": kept_for_sft,
    }
    folder = Path(sft_dir if kept_for_sft else non_sft_dir)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(noted, ensure_ascii=False, indent=2)
    (folder / f"{task_id}.json").write_text(text, encoding="utf-8")
