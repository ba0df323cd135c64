"""Rollouts that fail, are old, or are not the trained policy's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trinity_lab.advisors.following import Following, Series, Symptom

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.ports import Observation

_WINDOW = 4
_GAP, _GAP_WHEN_OLD = 0.05, 0.5  # nats a token
_OLD = 4.0  # optimizer steps
_FAILED = 0.1  # of the rollouts
_FEW_CHATS, _FEWEST_CHATS = 0.9, 50
_BROKEN = "rollout/api/broken_"


class Mismatch(Following):
    """Finds log-probabilities of the rollout that are not the trainer's."""

    def __init__(self, config: Config) -> None:
        self._gaps, self._ages = Series(), Series()
        self._is_offline = _is_offline(config)

    def _look(self, seen: Observation) -> Symptom | None:
        if seen.role != "trainer" or self._is_offline:
            return None
        gap = seen.metrics.get("actor/rollout_logprob_diff")
        if not self._ages.add(seen.step, staleness_of(seen)):
            return None  # rows of a file that another run sampled: a difference is expected
        if not self._gaps.add(seen.step, None if gap is None else abs(gap)):
            return None
        limit = _GAP_WHEN_OLD if self._ages.last(_WINDOW) > 0 else _GAP
        if len(self._gaps) < _WINDOW or self._gaps.last(_WINDOW) < limit:
            return None
        return Symptom(
            seen=f"log-probabilities of rollout and trainer differ by "
            f"{self._gaps.last(_WINDOW):.3g} nats a token ({self._gaps.since(_WINDOW)}), though "
            f"the samples are only {self._ages.last(_WINDOW):.1f} optimizer steps old",
            remedy="Check that weights arrive (audit: warn), that temperature, dtype and "
            "quantization of the engine are the trainer's, and that tokens which the model did not "
            "sample are masked; algorithm.rollout_correction weighs what remains",
        )


class Staleness(Following):
    """Finds samples that are many optimizer steps old when they are trained."""

    def __init__(self, config: Config) -> None:
        self._ages = Series()
        self._is_offline = _is_offline(config)
        self._window = max(_WINDOW, config.synchronizer.sync_interval)  # between syncs it rises

    def _look(self, seen: Observation) -> Symptom | None:
        if seen.role != "trainer" or self._is_offline:
            return None
        self._ages.add(seen.step, staleness_of(seen))
        if len(self._ages) < self._window or self._ages.last(self._window) < _OLD:
            return None
        return Symptom(
            seen=f"samples were {self._ages.last(self._window):.1f} optimizer steps old when they "
            f"were trained ({self._ages.since(self._window)})",
            remedy="Lower synchronizer.sync_interval or sync_offset, add rollout engines, or use "
            "sample_strategy: staleness_control",
        )


def _is_offline(config: Config) -> bool:
    """Return whether rows come from a file, which may be another run's."""
    return config.mode == "train" and not config.is_standalone


def staleness_of(seen: Observation) -> float | None:
    """Return the mean off-policy steps of the samples of an optimizer step.

    Step s trains the policy of version s - 1.

    Returns:
        None: the version that sampled them is unknown, or is one that this run has not reached.
    """
    version = seen.metrics.get("sample/model_version/mean")
    if version is None or version > seen.step - 1:
        return None
    return seen.step - 1 - version


class Failures(Following):
    """Finds rollouts that fail: tools, judges, time limits."""

    def __init__(self) -> None:
        self._shares = Series()
        self._kinds: Counter[str] = Counter()

    def _look(self, seen: Observation) -> Symptom | None:
        metrics = seen.metrics
        failed = metrics.get("rollout/failed_runs")
        if seen.role != "explorer" or failed is None:
            return None
        failed += metrics.get("rollout/retried_runs", 0.0)
        total = metrics.get("rollout/num_runs", 0.0)
        self._shares.add(seen.step, failed / total if total else 0.0)
        for name, value in metrics.items():
            if name.startswith(("rollout/failed_runs/", "rollout/retried_runs/")):
                self._kinds[name.rpartition("/")[2]] += int(value)
        if len(self._shares) < _WINDOW or self._shares.last(_WINDOW) < _FAILED:
            return None
        kinds = ", ".join(f"{number} {name}" for name, number in self._kinds.most_common(3))
        return Symptom(
            seen=f"{self._shares.last(_WINDOW):.0%} of the rollouts failed, or had to be made "
            f"again ({self._shares.since(_WINDOW)}{f'; {kinds}' if kinds else ''})",
            remedy="trinity log RUN names the errors. A tool or a judge that fails now and then "
            "biases what is trained: repair it, retry inside the workflow, or raise the time limit",
        )


class BrokenChats(Following):
    """Finds chats whose next turn does not go on by the token ids of the last reply."""

    def __init__(self) -> None:
        self._continued = 0
        self._broken: Counter[str] = Counter()

    def _look(self, seen: Observation) -> Symptom | None:
        if seen.role != "explorer":
            return None
        for name, value in seen.metrics.items():
            if name.startswith(_BROKEN) and name.endswith("/sum"):
                self._broken[name.removeprefix(_BROKEN).removesuffix("/sum")] += int(value)
        self._continued += int(seen.metrics.get("rollout/api/continued/sum", 0.0))
        total = self._continued + self._broken.total()
        if total < _FEWEST_CHATS or self._continued >= _FEW_CHATS * total:
            return None
        reasons = ", ".join(f"{number} {name}" for name, number in self._broken.most_common(3))
        return Symptom(
            seen=f"only {self._continued} of {total} replies to chats with an earlier one went on "
            f"by its token ids (up to step {seen.step}; {reasons})",
            remedy="Each broken chat is trained as a row of its own, whose tokens may not be those "
            "that were sampled. docs/explanation/chats.md says what breaks a chat, and the remedy",
        )
