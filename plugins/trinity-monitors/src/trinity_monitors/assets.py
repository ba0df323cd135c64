"""What the monitors write with: is it there?"""

from __future__ import annotations

from trinity.errors import ConfigError

from trinity_monitors.mlflow_monitor import refuse_unreachable, store_uri
from trinity_monitors.package import imported

__all__ = ["missing_mlflow", "missing_swanlab", "missing_trackio", "missing_wandb"]


def missing_wandb() -> str | None:
    """Return that the package is not installed."""
    return _missing("wandb")


def missing_trackio() -> str | None:
    """Return that the package is not installed."""
    return _missing("trackio")


def missing_swanlab() -> str | None:
    """Return that the package is not installed."""
    return _missing("swanlab")


def missing_mlflow() -> str | None:
    """Return that the package is not installed, or that no server answers."""
    missing = _missing("mlflow")
    if missing:
        return missing
    try:
        refuse_unreachable(store_uri(None))
    except ConfigError as error:
        return str(error)
    return None


def _missing(package: str) -> str | None:
    try:
        imported(package)
    except ConfigError as error:
        return str(error)
    return None
