"""Where metrics go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Flushes", "Monitor"]


class Monitor(Protocol):
    """Receives the metrics of each step.

    It is made with those of ``directory`` and ``role`` that its constructor names, one a role, and
    with ``monitor.monitor_args``.
    """

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Record the metrics of one step."""

    def close(self) -> None:
        """Write out what is held; safe to call twice."""


class Flushes(Protocol):
    """Ability ``flush`` of a monitor: it is asked to before each checkpoint.

    Without it, what a killed run had not written may be missing from the curves.
    """

    def flush(self) -> None:
        """Hand to the operating system what was logged."""
