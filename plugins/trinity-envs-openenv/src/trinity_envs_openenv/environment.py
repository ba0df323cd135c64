"""The virtual environment that servers of OpenEnv run in."""

from __future__ import annotations

from trinity.extend import EnvironmentSpec

__all__ = ["ENVIRONMENT"]

ENVIRONMENT = EnvironmentSpec(
    name="openenv",
    what="OpenEnv 0.10, to start servers from folders",
    size="330 MB",
    packages=("openenv>=0.10,<0.11", "uvicorn>=0.30"),
    python=">=3.11",
)
