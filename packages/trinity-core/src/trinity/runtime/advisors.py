"""Lets advisors read each step of a run, and does what the file says with what they find.

metrics of a phase, samples on demand --> Advisor.observe --> log, display, run.json
                                                         +--> warn | stop | rollback
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.metrics import numbers_in
from trinity.common.ports import Observation
from trinity.common.value_checks import text_of
from trinity.extend.kinds import KINDS
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.observers import Observer
from trinity.runtime.record.records import finding_line
from trinity.runtime.record.shown_samples import NewestSamples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trinity.common.ports import Advice, Advisor
    from trinity.runtime.parts import Parts

logger = logging.getLogger(__name__)

_MAX_SAMPLES = 8  # that a finding names


class Advisors(Observer):
    """Asks each advisor until it has said something. One that raises is told once, and left out.

    Args:
        parts: of the stage; its ``stop_reason`` is set.
        findings: as run.json has them, of earlier starts too; what is found is added.
        tell: writes them down; the log shows each.
    """

    def __init__(
        self, parts: Parts, findings: list[dict[str, Any]], *, tell: Callable[[], None]
    ) -> None:
        self._parts, self._findings, self._tell = parts, findings, tell
        self._actions = parts.config.advisors
        self._samples = NewestSamples(parts.rundir.path)
        known = {one["advisor"] for one in findings}
        self._advisors: dict[str, Advisor] = {}
        for component in parts.manager.components("advisor"):
            name = component.name
            if name not in known and self._actions.get(name) != "off":
                made = partial(KINDS["advisor"].made, component.load(), {}, config=parts.config)
                self._try(name, lambda made=made, name=name: self._advisors.update({name: made()}))

    def replay(self) -> None:
        """Show what the run did before it was stopped."""
        for row in read_metrics(self._parts.rundir.monitor):
            numbers = {key: value for key, value in row.items() if isinstance(value, float)}
            self._ask(Observation(role=str(row["role"]), step=int(row["step"]), metrics=numbers))

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        numbers, _ = numbers_in(metrics)
        samples = partial(self._samples.rows, step) if role == "trainer" else tuple
        self._ask(Observation(role=role, step=step, metrics=numbers, samples=samples))

    def _ask(self, seen: Observation) -> None:
        for name in list(self._advisors):
            self._try(name, lambda name=name: self._ask_one(name, seen))
        for one in self._findings:  # of earlier starts too, whose step may come again
            if one["role"] == seen.role and one["step"] <= seen.step:
                self._obey(one)

    def _obey(self, finding: dict[str, Any]) -> None:
        """Do what the file says now with a finding."""
        name, action = finding["advisor"], self._actions.get(finding["advisor"], "warn")
        finding["action"] = "warn" if action == "off" else action
        if finding["action"] != "warn":
            self._parts.stop_reason = f"advisor {name}: {finding['message']} ({action})"

    def _ask_one(self, name: str, seen: Observation) -> None:
        advice = self._advisors[name].observe(seen)
        if advice is not None:
            del self._advisors[name]
            self._found(name, advice, seen)

    def _found(self, name: str, advice: Advice, seen: Observation) -> None:
        self._findings.append({
            "advisor": name, "step": seen.step, "role": seen.role, "message": advice.seen,
            "remedy": advice.remedy, "samples": list(advice.samples)[:_MAX_SAMPLES],
            "action": self._actions.get(name, "warn"), "settings": dict(advice.settings),
        })  # fmt: skip
        logger.warning("%s", finding_line(self._findings[-1]))
        self._tell()

    def _try(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the boundary around one plugin
            self._advisors.pop(name, None)
            logger.warning(
                "the advisor %s failed and is asked no more: %s: %s",
                name, type(error).__name__, text_of(error),
            )  # fmt: skip
