"""Where metrics go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Monitor(ABC):
    """Receives the metrics of each step.

    It is made with those of ``directory`` and ``role`` that its constructor names, one a role, and
    with ``monitor.monitor_args``.
    """

    @abstractmethod
    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Record the metrics of one step."""

    def close(self) -> None:
        """Write out what is held; safe to call twice."""

    def flush(self) -> None:
        """Hand to the operating system what was logged, before each checkpoint.

        Without it, what a killed run had not written may be missing from the curves.
        """

    def last_logged(self) -> tuple[int, Mapping[str, float | None]] | None:
        """Return step and metrics of what :meth:`log` recorded last, as a reader finds them.

        A number that is not finite may be None; before the first it is ``(0, {})``. Without it
        (None), a run's audit cannot say that the metrics that go in come out.
        """
        return None

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Record some of what an optimizer step trained.

        Without it, ``monitor.sample_interval`` shows nothing there; ``trinity view`` shows all.

        Args:
            samples: with ``eid`` (``batch/task/run/step``), ``reward`` and ``advantage`` (floats,
                or None), ``prompt`` and ``response`` (texts; empty: there is no tokenizer).
            step: the optimizer step.
        """
