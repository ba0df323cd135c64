"""Import the package that a monitor writes with, or say how to install it."""

from __future__ import annotations

import importlib
from typing import Any

from trinity.errors import ConfigError

__all__ = ["imported"]


def imported(name: str) -> Any:  # Any: a module
    """Return the package.

    Raises:
        ConfigError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        text = " ".join(str(error).split())
        raise ConfigError(
            f"monitor.monitor_type: {name} needs the package {name}: {text}. "
            f"Run: pip install 'trinity-monitors[{name}]'"
        ) from error
