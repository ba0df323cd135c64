"""An environment of tools: add the numbers that it says, and hand the sum in.

It runs where OpenEnv is installed, in the environment of its own.
"""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class Adder(MCPEnvironment):
    """Wants 40 + 6."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("adder")

        @mcp.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @mcp.tool
        def hand_in(total: int) -> str:
            """Hand the total in."""
            return "thank you"

        super().__init__(mcp)
        self._state = State()

    def reset(self, seed: int | None = None, **kwargs: Any) -> Observation:
        self._state = State(episode_id="one")
        return Observation(metadata={"question": "40 + 6"})

    def step(self, action: Any, **kwargs: Any) -> Observation:
        return self._judged(action, super().step(action, **kwargs))

    async def step_async(self, action: Any, **kwargs: Any) -> Observation:
        return self._judged(action, await super().step_async(action, **kwargs))

    def _step_impl(self, action: Any, **kwargs: Any) -> Observation:
        raise ValueError("there are only tools")

    def _judged(self, action: Any, observation: Observation) -> Observation:
        if isinstance(action, CallToolAction) and action.tool_name == "hand_in":
            observation.done = True
            observation.reward = float(action.arguments.get("total") == 46)
        return observation

    @property
    def state(self) -> State:
        return self._state


app = create_app(
    Adder, CallToolAction, CallToolObservation, env_name="adder", max_concurrent_envs=8
)
