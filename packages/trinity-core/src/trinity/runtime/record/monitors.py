"""Hand the metrics of a run to its monitors, whoever of them fails.

A failure is told once and keeps nothing from the other monitors, and the run goes on.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from trinity.common.metrics import numbers_in
from trinity.common.value_checks import text_of
from trinity.monitor.jsonl import JsonlMonitor
from trinity.runtime.error_context import try_to
from trinity.runtime.observers import Observer
from trinity.runtime.record.records import is_full

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.metrics import Metrics
    from trinity.common.ports import Monitor
    from trinity.runtime.audit import Audit

logger = logging.getLogger(__name__)

PATIENCE = 3  # failures of a monitor in a row, until it gets no more
_WHOSE = {  # where a metric comes from, by how its name begins
    "experience_pipeline": "an experience operator",
    "actor": "the loss or the trainer",
    "rollout": "a workflow",
    "eval": "a workflow",
}


class Monitors(Observer):
    """Gives each monitor the numbers of each step.

    What is no number is told once a name and left out. A monitor that raises is told once, tried
    again at the next step, and gets no more after ``PATIENCE`` failures in a row; the others get
    all. A full disk ends the run, as nothing that follows could be kept; so does ``metrics.jsonl``.

    Args:
        monitors: by role; one that is given up is removed.
        audit: compares what comes out with what went in; None: nobody does.
    """

    def __init__(
        self, monitors: Mapping[str, list[Monitor]], *, audit: Audit | None = None
    ) -> None:
        self._monitors, self._audit = monitors, audit
        self._said: set[str] = set()
        self._num_failed_in_row: Counter[tuple[str, int]] = Counter()
        self._num_missed: Counter[str] = Counter()

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        numbers, others = numbers_in(metrics)
        for name, value in others.items():
            self._tell_other(name, value, role=role)
        for monitor in list(self._monitors.get(role, ())):
            self._give(monitor, numbers, role=role, step=step)

    def flush(self) -> None:
        for monitor in self._all():
            try_to(monitor.flush, failure=f"{type(monitor).__qualname__} did not write")

    def close(self) -> None:
        for monitor in self._all():
            try_to(monitor.close, failure=f"{type(monitor).__qualname__} did not close")
        for name, count in self._num_missed.items():
            logger.warning(
                "the monitor %s lacks %d records of this run; metrics.jsonl has them", name, count
            )
        self._num_missed.clear()

    def _all(self) -> list[Monitor]:
        return [monitor for own in self._monitors.values() for monitor in own]

    def _give(self, monitor: Monitor, numbers: Metrics, *, role: str, step: int) -> None:
        key, name = (role, id(monitor)), type(monitor).__qualname__
        given, audit = dict(numbers), self._audit
        try:
            monitor.log(given, step=step)
            out = None if audit is None else audit.recorded(monitor, role=role)
        except (Exception, SystemExit) as error:  # the boundary around one plugin
            if is_full(error) or isinstance(monitor, JsonlMonitor):
                raise
            self._num_missed[name] += 1
            self._num_failed_in_row[key] += 1
            self._tell_failure(name, error, role=role, step=step)
            if self._num_failed_in_row[key] >= PATIENCE:
                self._monitors[role].remove(monitor)
                logger.warning(
                    "the monitor %s failed %d times in a row and gets no more %s metrics",
                    name, PATIENCE, role,
                )  # fmt: skip
        else:
            self._num_failed_in_row.pop(key, None)
            if audit is not None and audit.is_on:
                audit.logged(name, numbers, given, out=out, role=role, step=step)

    def _tell_failure(self, name: str, error: BaseException, *, role: str, step: int) -> None:
        if name in self._said:
            return
        self._said.add(name)
        logger.warning(
            "the monitor %s failed at step %d (%s): %s: %s. The run goes on and tries it again; "
            "metrics.jsonl has every number.",
            name, step, role, type(error).__name__, text_of(error),
        )  # fmt: skip

    def _tell_other(self, name: str, value: object, *, role: str) -> None:
        if name in self._said:
            return
        self._said.add(name)
        whose = _WHOSE.get(name.partition("/")[0], f"a part of the {role}")
        logger.warning(
            "the metric %s, which %s gave, is no number and is left out here and later: %s. "
            "Return numbers, or dicts of numbers, as metrics.",
            name, whose, " ".join(f"{value!r:.80}".split()),
        )  # fmt: skip
