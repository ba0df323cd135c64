"""Note how often the tasks of a step were solved, for the selector that chooses the next ones."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from trinity.buffer.operators import ExperienceOperator
from trinity.buffer.task_feedback import SELECTOR_METRIC

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics


class PassRateCalculator(ExperienceOperator):
    """Computes the mean reward of each task, and how many tasks are neither too easy nor too hard.

    The mean rewards go to the task selectors: ``selector_metric``, by taskset the ``indices`` of
    rows and their ``values``.
    """

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        rewards: dict[tuple[str, int], list[float]] = {}
        for exp in exps:
            index = exp.info.get("task_index")
            if index is not None and exp.reward is not None:
                place = (str(index["taskset_id"]), int(index["index"]))
                rewards.setdefault(place, []).append(exp.reward)
        rates = {place: fmean(values) for place, values in rewards.items()}
        by_taskset: dict[str, dict[str, list[float]]] = {}
        for (taskset, row), rate in rates.items():
            entry = by_taskset.setdefault(taskset, {"indices": [], "values": []})
            entry["indices"].append(row)
            entry["values"].append(rate)
        if not rates:
            return exps, {}
        told: dict[str, Any] = {SELECTOR_METRIC: by_taskset}  # no number, but for the selectors
        return exps, told | _shares(list(rates.values()))


def _shares(rates: list[float]) -> Metrics:
    low, high = 1 / 16, 15 / 16
    tests = {
        "valid_ratio": lambda p: 0 < p < 1,
        "strict_valid_ratio": lambda p: low < p < high,
        "<1_ratio": lambda p: p < 1,
        ">0_ratio": lambda p: p > 0,
        "<15_16_ratio": lambda p: p < high,
        ">1_16_ratio": lambda p: p > low,
    }
    return {
        f"selection/{name}": fmean(map(float, map(test, rates))) for name, test in tests.items()
    }
