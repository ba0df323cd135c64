"""A reward that is earned otherwise than it was meant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trinity_lab.advisors.following import Following, Series, Symptom

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.ports import Observation

_OTHERS = ("reward", "response_length", "prompt_length", "truncated", "time", "api", "judged")
_PART_WINDOW, _RATIO = 6, 6.0
_FEWEST_EVALUATIONS, _IN_A_ROW = 3, 2
_NOT_FINITE = 3  # steps
_REMEDY = (
    "Read the samples with the highest rewards: what earns them? Correct the reward, or go back to "
    "the best held-out checkpoint (trainer.keep_best) and stop there"
)


class RewardHacking(Following):
    """Finds a training reward that rises while the held-out one falls, or one part that decides."""

    def __init__(self) -> None:
        self._rewards, self._held, self._name = Series(), Series(), ""
        self._rewards_then: list[float] = []  # training reward at each evaluation
        self._spread = Series()  # of rewards within a group
        self._in_a_row = 0  # evaluations
        self._parts: dict[str, Series] = {}
        self._widths: dict[str, Series] = {}

    def _look(self, seen: Observation) -> Symptom | None:
        if seen.role != "explorer":
            return None
        metrics = seen.metrics
        if any(name.startswith("eval/") for name in metrics):
            return self._evaluated(metrics, seen.step)
        if "rollout/reward/mean" not in metrics:
            return None
        self._rewards.add(seen.step, metrics["rollout/reward/mean"])
        self._spread.add(seen.step, metrics.get("group_advantages/reward_std/mean"))
        return self._of_parts(metrics, seen.step)

    def _evaluated(self, metrics: Mapping[str, float], step: int) -> Symptom | None:
        """Compare the first evaluation set with the training reward, twice in a row."""
        self._name = self._name or next((one for one in metrics if "/reward/mean@" in one), "")
        if not self._held.add(step, metrics.get(self._name)):
            return None
        self._rewards_then.append(self._rewards.last(4) if len(self._rewards) else 0.0)
        self._in_a_row = self._in_a_row + 1 if self._is_gamed(metrics) else 0
        return self._gamed() if self._in_a_row >= _IN_A_ROW else None

    def _is_gamed(self, metrics: Mapping[str, float]) -> bool:
        held = self._held.values
        if len(held) < _FEWEST_EVALUATIONS or not len(self._rewards):  # of another run, or a bench
            return False
        noise, began = self._noise(metrics), self._rewards.first(4)
        risen = self._rewards_then[-1] - began
        if risen < max(6 * self._rewards.noise(4), 0.3 * abs(began), 1e-6):
            return False
        has_fallen = max(held[:-1]) - held[-1] > 2.5 * noise
        return has_fallen or held[-1] - held[0] < min(noise, 0.2 * risen)

    def _gamed(self) -> Symptom:
        held, began = self._held, self._rewards.first(4)
        best = max(range(len(held)), key=held.values.__getitem__)
        text = (
            f"the training reward rose from {began:.3g} to {self._rewards_then[-1]:.3g}, and "
            f"{self._name} went from {held.values[0]:.3g} (best {held.values[best]:.3g} at step "
            f"{held.steps[best]}) to {held.values[-1]:.3g} at step {held.steps[-1]}"
        )
        return Symptom(seen=text, remedy=_REMEDY, shows=self._is_high)

    def _noise(self, metrics: Mapping[str, float]) -> float:
        """Return the standard error of an evaluation's mean, by its spread or that of training."""
        taskset, k = self._name.split("/")[1], float(self._name.rpartition("@")[2])
        std = metrics.get(f"eval/{taskset}/reward/std@{k:.0f}", 0.0)
        within = std * (k / (k - 1)) ** 0.5 if k > 1 else 0.0
        if len(self._spread):
            within = max(within, self._spread.last(4))
        num = metrics.get(f"eval/{taskset}/num_tasks", 1.0) * k
        return max(1.2 * within, 0.05 * abs(metrics[self._name])) / max(num, 1.0) ** 0.5 + 1e-6

    def _is_high(self, row: Mapping[str, object]) -> bool:
        reward = row["reward"]
        return isinstance(reward, float) and reward > self._rewards.values[-1]

    def _of_parts(self, metrics: Mapping[str, float], step: int) -> Symptom | None:
        """Find a part whose range is many times that of the others, while another falls."""
        names = _parts_of(metrics)
        if len(names) < 2:
            return None
        for name in names:
            self._parts.setdefault(name, Series()).add(step, metrics[f"rollout/{name}/mean"])
            width = metrics[f"rollout/{name}/max"] - metrics[f"rollout/{name}/min"]
            self._widths.setdefault(name, Series()).add(step, width)
        if any(len(self._widths[name]) < _PART_WINDOW for name in names):
            return None
        widths = {name: self._widths[name].last(_PART_WINDOW) for name in names}
        first = max(widths, key=widths.__getitem__)
        rest = max(widths[name] for name in names if name != first)
        if widths[first] < _RATIO * rest:
            return None
        text = (
            f"the part {first} of the reward decides alone: it spans {widths[first]:.3g} within a "
            f"step, the next one {rest:.3g} ({self._rewards.since(_PART_WINDOW)})"
        )
        remedy = (
            "Scale the parts to the weight that they should have; a format part is usually worth a "
            "tenth of the answer"
        )
        return Symptom(seen=text, remedy=remedy, shows=self._is_high)


class NonFinite(Following):
    """Finds metrics of workflows and rewards that are NaN or infinite in step after step."""

    def __init__(self) -> None:
        self._steps: dict[str, list[int]] = {}  # by metric

    def _look(self, seen: Observation) -> Symptom | None:
        if seen.role != "explorer":
            return None
        for name, value in seen.metrics.items():
            if math.isfinite(value) or not name.startswith(("rollout/", "eval/")):
                continue
            steps = self._steps.setdefault(name, [])
            steps.append(seen.step)
            if len(steps) >= _NOT_FINITE:
                return _not_finite(name, value, steps)
        return None


def _not_finite(name: str, value: float, steps: list[int]) -> Symptom:
    return Symptom(
        seen=f"the metric {name} is {value} in steps {', '.join(map(str, steps))}",
        remedy="Look where the workflow or the reward function computes it: 0/0 and the mean of "
        "nothing are NaN, and one such value makes the mean of its step NaN. Leave the metric out "
        "where it has no value",
    )


def _parts_of(metrics: Mapping[str, float]) -> list[str]:
    """Return the metrics of a rollout that are its reward's parts: together they are the reward."""
    names = [
        name.split("/")[1]
        for name in metrics
        if name.startswith("rollout/") and name.endswith("/mean") and name.count("/") == 2
    ]
    parts = [name for name in names if name not in _OTHERS]
    total = sum(metrics[f"rollout/{name}/mean"] for name in parts)
    reward = metrics["rollout/reward/mean"]
    return parts if abs(total - reward) <= 1e-5 * max(1.0, abs(reward)) else []
