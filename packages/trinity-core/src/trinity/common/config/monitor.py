"""``monitor``: where metrics go."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from typing import Annotated, Any

from pydantic import model_validator

from trinity.common.config.base import Lowercase, StrictModel, core, other

__all__ = ["MonitorConfig", "OtherMonitor"]


class OtherMonitor(StrictModel):
    """An entry of ``monitor.also``."""

    monitor_type: Annotated[str, Lowercase] = core("", "the monitor")
    monitor_args: dict[str, Any] | None = core(None, "its arguments")


class MonitorConfig(OtherMonitor):
    """``monitor``: where metrics go, beside the jsonl file that is always written."""

    monitor_type: Annotated[str, Lowercase] = core("tensorboard", "the monitor")
    monitor_args: dict[str, Any] | None = core(None, "arguments of the monitor")
    also: list[OtherMonitor] = core([], "monitors beside it, each with its arguments")
    sample_interval: int = core(
        0, "optimizer steps after which monitors show samples as text; 0: never", ge=0
    )
    num_samples: int = core(8, "how many of a step they show", ge=1)
    detailed_stats: bool = core(False, "standard deviation, least and largest of each mean too")
    enable_ray_timeline: bool = other(False, "write Ray's timeline", used_by="runs on Ray")

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        """Read a name as the monitor's: published tuners assign one to the whole section."""
        return {"monitor_type": value} if isinstance(value, str) else value
