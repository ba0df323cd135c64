"""The environment that the plugin is checked with: it says back what it hears, twice.

It runs where OpenEnv is installed.
"""

from __future__ import annotations

from typing import Any

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Said(Action):
    """What the model says."""

    message: str


class Heard(Observation):
    """What is said back."""

    text: str = ""


class Example(Environment):
    """Rewards each character with a tenth, ten at most; two steps."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, **_: Any) -> Heard:
        """Begin anew."""
        self._state = State()
        return Heard(text="Say something.")

    def step(self, action: Said, **_: Any) -> Heard:
        """Say it back."""
        self._state.step_count += 1
        reward = min(10, len(action.message)) / 10
        return Heard(text=action.message, reward=reward, done=self._state.step_count == 2)

    @property
    def state(self) -> State:
        """Return how many steps there were."""
        return self._state


app = create_app(Example, Said, Heard, env_name="example", max_concurrent_envs=64)
