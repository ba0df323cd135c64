"""The virtual environment that verifiers runs in."""

from __future__ import annotations

from trinity.extend import EnvironmentSpec

__all__ = ["ENVIRONMENT"]

ENVIRONMENT = EnvironmentSpec(
    name="verifiers",
    what="verifiers 0.4 and uv",
    size="370 MB",
    packages=("verifiers>=0.4,<0.5", "openai>=2,<3", "uv>=0.8"),
    python=">=3.11,<3.15",
)
