"""Where metrics go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Flushes", "Monitor", "TakesSamples"]


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


class TakesSamples(Protocol):
    """Ability ``samples`` of a monitor: it shows texts.

    Without it, ``monitor.sample_interval`` shows nothing there; ``trinity view`` shows all.
    """

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Record some of what an optimizer step trained.

        Args:
            samples: with ``eid`` (``batch/task/run/step``), ``reward`` and ``advantage`` (floats,
                or None), ``prompt`` and ``response`` (texts; empty: there is no tokenizer).
            step: the optimizer step.
        """
