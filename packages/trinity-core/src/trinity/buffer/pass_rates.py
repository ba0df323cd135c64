"""Note how often the tasks of a step were solved, for the selector that chooses the next ones."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from trinity.buffer.operators import ExperienceOperator

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["PassRateCalculator"]


class PassRateCalculator(ExperienceOperator):
    """Computes the mean reward of each task, and how many tasks are neither too easy nor too hard.

    Attributes:
        selector_metric: of the last step, by taskset: the rows' ``indices`` and mean ``values``.
    """

    def __init__(self) -> None:
        self.selector_metric: dict[str, dict[str, list[Any]]] = {}

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return all experiences, and the shares of tasks whose pass rate p is of use."""
        rewards: dict[tuple[str, int], list[float]] = {}
        for exp in exps:
            index = exp.info.get("task_index")
            if index is not None and exp.reward is not None:
                place = (str(index["taskset_id"]), int(index["index"]))
                rewards.setdefault(place, []).append(exp.reward)
        rates = {place: fmean(values) for place, values in rewards.items()}
        self.selector_metric = {}
        for (taskset, row), rate in rates.items():
            entry = self.selector_metric.setdefault(taskset, {"indices": [], "values": []})
            entry["indices"].append(row)
            entry["values"].append(rate)
        return exps, _shares(list(rates.values()))


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
    if not rates:
        return {}
    return {
        f"selection/{name}": fmean(map(float, map(test, rates))) for name, test in tests.items()
    }
