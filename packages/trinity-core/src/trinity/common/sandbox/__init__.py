"""Sandboxes: where programs run that a model wrote."""

from __future__ import annotations

from trinity.common.sandbox.base import CommandResult, Limits, Sandbox, Session
from trinity.common.sandbox.choice import sandbox_named

__all__ = ["CommandResult", "Limits", "Sandbox", "Session", "sandbox_named"]
