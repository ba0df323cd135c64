"""A monitor that writes when it wants to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.ports import Monitor

__all__ = ["WithoutFlush", "name_of_monitor"]


class WithoutFlush:
    """Stands before a monitor that lacks ``flush``."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self.name = type(monitor).__qualname__

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Record the metrics of one step."""
        self._monitor.log(metrics, step=step)

    def flush(self) -> None:
        """Do nothing: what the monitor holds back is its own affair."""

    def close(self) -> None:
        """Write out what is held."""
        self._monitor.close()


def name_of_monitor(monitor: object) -> str:
    """Return what messages call a monitor."""
    return monitor.name if isinstance(monitor, WithoutFlush) else type(monitor).__qualname__
