"""A monitor with all abilities of its kind: what it lacks does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from trinity.common.ports import Monitor


class WholeMonitor:
    """Stands before a monitor, so that nobody asks what it is able to do.

    Args:
        monitor: any one.
        abilities: the words that its component says in ``provides``.
    """

    def __init__(self, monitor: Monitor, *, abilities: Collection[str]) -> None:
        self._monitor: Any = monitor  # with the abilities that are named
        self.name = type(monitor).__qualname__
        self.log: Callable[..., None] = monitor.log  # called at every step
        self._flushes = "flush" in abilities
        self.takes_samples = "samples" in abilities

    def flush(self) -> None:
        """Let it write out what was logged; without the ability, that is its own affair."""
        if self._flushes:
            self._monitor.flush()

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Show it what a step trained, if it can."""
        if self.takes_samples:
            self._monitor.log_samples(samples, step=step)

    def close(self) -> None:
        """Write out what is held."""
        self._monitor.close()
