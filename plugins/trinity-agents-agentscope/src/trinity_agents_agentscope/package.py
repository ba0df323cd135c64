"""AgentScope itself: is it there, and the parts of it that a run needs."""

from __future__ import annotations

import importlib
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from packaging.version import Version
from trinity.errors import ConfigError

__all__ = ["check_installed", "imported", "missing"]

OLDEST, TOO_NEW = "1.0.12", "2"
INSTALL = "Run: pip install 'trinity-agents-agentscope[agentscope]'"
QUIET = "AGENTSCOPE_DISABLE_CONSOLE_OUTPUT"  # read by each agent that is built


def check_installed() -> None:
    """Refuse what cannot run.

    Raises:
        ConfigError: AgentScope is not installed, or is a version without the tuner.
    """
    problem = missing()
    if problem:
        raise ConfigError(f"workflows of AgentScope need the package agentscope: {problem}")


def missing() -> str | None:
    """Return what is wrong with the installed AgentScope; None: nothing."""
    try:
        found = version("agentscope")
    except PackageNotFoundError:
        return f"it is not installed. {INSTALL}"
    if not Version(OLDEST) <= Version(found) < Version(TOO_NEW):
        return f"{found} is installed, and the tuner is in {OLDEST} to 1.x. {INSTALL}"
    return None


def imported(module: str) -> Any:  # Any: a module
    """Return a module of AgentScope; its agents print no replies, unless the user wants it.

    Raises:
        ConfigError: it is not installed, or cannot be imported.
    """
    os.environ.setdefault(QUIET, "true")  # thousands of replies are no help on a terminal
    try:
        return importlib.import_module(module)
    except ImportError as error:
        check_installed()
        text = " ".join(str(error).split())
        raise ConfigError(f"{module} cannot be imported: {text}. {INSTALL}") from error
