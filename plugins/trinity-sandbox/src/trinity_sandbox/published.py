"""Sandboxes, under the published path ``trinity.common.sandbox``."""

from __future__ import annotations

from trinity_sandbox.base import CommandResult, Limits, Sandbox, Session
from trinity_sandbox.choice import sandbox_named

__all__ = ["CommandResult", "Limits", "Sandbox", "Session", "sandbox_named"]

__path__: list[str] = []  # trinity.common.sandbox.base is served below it
