"""A run looks at its own parts, which return something wrong where nobody would see it.

    rows: written = read + dropped with a reason        audited_rows.py
    rows, batches: nobody changes them, later either    audited_rows.py, trainer/algorithm_parts.py
    log-probabilities: the rollout's are the policy's   trainer/algorithm_parts.py, one micro-batch
    weights: the engines have the trainer's             audited_sync
    metrics: what goes in comes out                     Monitors, by `logged`

Weights and metrics are looked at ``NUM_ALWAYS`` times, and from then on while that has taken less
than ``SHARE`` of the run.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trinity.common.config.check_names import is_own, named_parts
from trinity.common.config.parts import NamedParts
from trinity.common.metrics import numbers_in
from trinity.common.ports.trainer import WeightDigest, differing, digest_of
from trinity.errors import PluginError
from trinity.runtime.observers import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.metrics import Metrics
    from trinity.common.ports import Monitor, WeightSnapshot, WeightVersion
    from trinity.extend import PluginManager
    from trinity.runtime.audited_rows import RowAudit
    from trinity.runtime.parts import Parts

logger = logging.getLogger(__name__)

SHARE, NUM_ALWAYS = 0.004, 3
#: A row's mean gap of log-probabilities that is rounding: all in float32, or some in half of it.
TOLERANCE = {True: 0.01, False: 0.3}
LEAST_LR, LEAST_NORM = 1e-7, 1e-3  # below these a step need not change a weight that is looked at
_SAMPLERS = ("rollout_engine", "workflow", "experience_operator", "sync_method", "trainer")
_SAMPLERS += ("advantage_fn", "storage")
_NOT_FINITE = {"None", "nan", "inf", "-inf"}  # how a record may show a number that is not


class AuditError(PluginError):
    """A part broke its contract, and ``audit`` is ``stop``."""


class Audit(Observer):
    """Collects what is found in a stage, once per check and part.

    Attributes:
        step: the optimizer step that was made last.
        synced: the policy version that the engines have.
        rows: follows the rows of the stage; None: nobody does.
    """

    def __init__(self, config: Config, manager: PluginManager) -> None:
        self._config, self._manager = config, manager
        self.is_on = config.audit != "off"
        self.step = self.synced = 0
        self.rows: RowAudit | None = None
        self._findings: list[dict[str, Any]] = []  # as run.json has them, of earlier starts too
        self._tell: Callable[[], None] = lambda: None
        self._num_told, self._num_times = 0, dict[str, int]()
        self._began, self._spent_s = time.perf_counter(), 0.0
        self._weights: WeightDigest | None = None  # of the trainer, at the last sync
        self._should_move = False  # a step since then had a gradient

    def begin(
        self,
        findings: list[dict[str, Any]],
        *,
        step: int,
        is_resumed: bool,
        tell: Callable[[], None],
    ) -> None:
        """Go on after a step and add to these findings; ``tell`` is called in the loop's thread."""
        self._findings, self._num_told, self.step, self._tell = findings, len(findings), step, tell
        if self.rows is not None and is_resumed:
            self.rows.knows_all = False  # the checkpoint brought rows

    def found(self, check: str, kinds: Sequence[str], message: str) -> None:
        """Note what a part of one of these kinds does, the likeliest kind first.

        Raises:
            AuditError: ``audit`` is ``stop``.
        """
        parts = self._suspects(kinds)
        if any((one["check"], one["parts"]) == (check, parts) for one in self._findings):
            return
        finding = {"check": check, "parts": parts, "step": self.step, "message": message}
        self._findings.append(finding)
        line = f"audit ({check}): {message}. Look at {parts}."
        if self._config.audit == "stop":
            raise AuditError(f"{line} The run ends, as audit is stop.")
        logger.warning("%s The run goes on; with audit: stop it ends.", line)

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        if len(self._findings) > self._num_told:
            self._num_told = len(self._findings)
            self._tell()

    def finish(self) -> None:
        if self.rows is not None:
            self.rows.finish()

    def stepped(self, metrics: Mapping[str, object], *, step: int) -> Mapping[str, object]:
        """Look at what a train step did and tells; return it without what is told to the audit."""
        self.step = step
        numbers, _ = numbers_in(metrics)
        if self.rows is not None:
            self.rows.trained(numbers.get("perf/total_num_tokens"))
        told = {name: value for name, value in numbers.items() if name.startswith("audit/")}
        for kind in (name.rpartition("/")[2] for name in told if "/inputs/" in name):
            self.found("inputs", [kind], f"the {kind} changed tensors that it was given, in place")
        gap, limit = told.get("audit/gap", 0.0), TOLERANCE[self._is_exact()]
        if not gap <= limit:
            self.found(
                "logprobs", _SAMPLERS,
                f"the trainer finds other log-probabilities than the rollout told, by {gap:.3g} a "
                f"token in one of {told['audit/rows']:.0f} rows of step {step} that its very "
                f"weights sampled ({limit} may be rounding)",
            )  # fmt: skip
        moves = numbers.get("actor/lr", 0.0) > LEAST_LR and not self._config.model.lora_configs
        self._should_move |= moves and numbers.get("actor/grad_norm", 0.0) > LEAST_NORM
        return {name: value for name, value in metrics.items() if name not in told}

    def recorded(self, monitor: Monitor, *, role: str) -> tuple[int, Mapping[str, Any]] | None:
        """Return what a monitor recorded last; None: it does not say, or there is no time."""
        with self.timed(f"metrics {role} {id(monitor)}") as has_time:
            return monitor.last_logged() if has_time else None

    def logged(
        self, name: str, metrics: Metrics, given: Metrics, *, out: Any, role: str, step: int
    ) -> None:
        """Compare the metrics of a step with those that a monitor was given and what it recorded.

        Args:
            name: of the monitor.
            metrics: of the step.
            given: the object that it was given, with these.
            out: step and metrics as it recorded them (Any: a plugin's); None: nobody knows.
            role: of the monitor.
            step: of the metrics.
        """
        problem = ""
        if given != metrics:
            changed = [one for one in {**metrics, **given} if metrics.get(one) != given.get(one)]
            problem = f"changed {changed[0]} in the metrics that it was given"
        elif out is not None:
            wrong = [n for n, value in metrics.items() if not _is_same(value, out[1].get(n, ...))]
            problem = f"recorded {len(wrong)} metrics wrong, {wrong[0]} first" if wrong else ""
            problem = problem if out[0] == step else f"has step {out[0]} as the last one"
        if problem:
            self.found("metrics", ["monitor"], f"at step {step} of the {role} {name} {problem}")

    @contextmanager
    def timed(self, what: str) -> Iterator[bool]:
        """Give whether there is time for it, and count what it takes."""
        began, times = time.perf_counter(), self._num_times.get(what, 0)
        has_time = times < NUM_ALWAYS or self._spent_s < SHARE * (began - self._began)
        self._num_times[what] = times + 1
        yield self.is_on and has_time
        self._spent_s += time.perf_counter() - began

    def compare_weights(
        self, own: WeightDigest, engines: Mapping[str, WeightDigest | None]
    ) -> None:
        """Look whether the trainer's weights moved, and whether the engines have them."""
        if self._should_move and self._weights == own:
            message = f"steps up to {self.step} had a gradient and changed no weight"
            self.found("weights", ["trainer"], message)
        is_float = all(dtype == "float32" for dtype, _ in own.values())
        self._weights, self._should_move = (own if is_float else None), False
        for name, digest in engines.items():
            wrong = differing(own, digest) if digest else []
            if wrong:
                self.found(
                    "weights", ["sync_method", "rollout_engine"],
                    f"after the sync at step {self.step} {name} has other weights than the trainer "
                    f"gave: {len(wrong)} of {len(own)} tensors, {wrong[0]} first",
                )  # fmt: skip

    def _is_exact(self) -> bool:
        rollout = self._config.explorer.rollout_model.dtype
        return rollout == self._config.trainer.precision == "float32"

    def _suspects(self, kinds: Sequence[str]) -> str:
        """Return the parts of these kinds; of plugins alone, where there are some."""
        parts = NamedParts(self._manager)
        named = [one for one in named_parts(self._config) if one.kind in kinds]
        found = {component for one in named if (component := parts.find(one.kind, one.name))}
        strange = [one for one in found if not is_own(one)] or list(found)
        strange.sort(key=lambda one: (kinds.index(one.kind), one.name))
        return ", ".join(f"{one.kind} {one.name} ({one.origin})" for one in strange) or kinds[0]


def audited_sync(parts: Parts, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
    """Bring weights to the engines, compare theirs with these, and return the engines' version."""
    sync, audit = parts.sync, parts.audit
    assert sync is not None
    if not audit.is_on:
        return sync.sync(snapshot)
    given: list[WeightSnapshot] = []  # none, where the method does without

    def noted() -> WeightSnapshot:
        given.append(snapshot())
        return given[-1]

    version = sync.sync(noted)
    if given and version != given[-1].version:
        message = f"it says that it brought version {version!r}, not {given[-1].version}"
        audit.found("weights", ["sync_method"], message)
    audit.synced = given[-1].version if given else version
    with audit.timed("weights") as has_time:
        own, engines = _digests(parts, given) if has_time else (None, {})
        if own is not None:
            audit.compare_weights(own, engines)
    return version


def _digests(
    parts: Parts, given: list[WeightSnapshot]
) -> tuple[WeightDigest | None, Mapping[str, WeightDigest | None]]:
    """Return the digests of the trainer's weights and of the engines', as far as they say."""
    assert parts.trainer is not None
    try:
        own = parts.trainer.weight_digest()
        own = digest_of(given[-1].tensors) if own is None and given else own
        if parts.engine_weights is not None:
            return own, parts.engine_weights.digests(parts.audit.synced)
        return own, {f"engine-{n}": one.weight_digest() for n, one in enumerate(parts.engines)}
    except Exception as error:  # noqa: BLE001 -- a run must not end by being looked at
        logger.warning("audit: the weights cannot be compared: %s", error)
        return None, {}


def _is_same(given: float, out: Any) -> bool:
    return bool(out == given) or (not math.isfinite(given) and str(out) in _NOT_FINITE)
