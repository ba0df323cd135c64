"""Choose the tasks whose predicted pass rate is what one wants (BOTS, arXiv 2510.26374).

{"selector_metric": {"0": {"indices": [7, 2], "values": [0.5, 1.0]}}}: the rows 7 and 2 of the first
taskset were solved in half and in all of their runs.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from trinity.common.operators import ExperienceOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics


SELECTOR_METRIC = "selector_metric"  # the published name, for the pipeline


class PassRateCalculator(ExperienceOperator):
    """Computes the mean reward of each task, and how many tasks are neither too easy nor too hard.

    The mean rewards go to the task selectors: ``selector_metric``, by taskset the ``indices`` of
    rows and their ``values``.
    """

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return the experiences as they are, and the mean reward of each task."""
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


_EMA = 0.9  # how much of the last cap stays
_FAR_OFF = 0.25  # mean error of the prediction from which it is trusted half as much


class PassRateEstimator:
    """Predicts each task's pass rate by a beta distribution with parameters alpha and beta.

    The rates of two reference models bound a task's own, ``f1 + (f2 - f1) cap``; cap follows from
    the tasks that were observed. An update forgets a part ``lamb`` of what is known, and adds m
    tries: a part ``1 - rho`` of them as observed, a part rho as predicted.

    Args:
        features: ``[n, 2]``, the pass rates f1 of a weak and f2 of a strong model.
        m: tries that an update is worth, above 0.
        lamb: what an update forgets, from 0 to 1.
        rho: the part of predictions, from 0 to 1.
        adaptive_rho: halve rho where the prediction was off by 0.25 on average.
    """

    def __init__(
        self,
        features: Sequence[Sequence[float]] | NDArray[np.float64],
        *,
        m: float = 16,
        lamb: float = 0.2,
        rho: float = 0.2,
        adaptive_rho: bool = False,
    ) -> None:
        rates = np.asarray(features, dtype=np.float64)
        self.weak, self.strong = rates[:, 0], rates[:, 1]
        self.m, self.lamb, self.rho, self.adaptive_rho = m, lamb, rho, adaptive_rho
        self.alphas, self.betas = np.ones(len(rates)), np.ones(len(rates))
        self.cap_coef: float | None = None  # None: nothing was observed yet

    @property
    def predicted(self) -> NDArray[np.float64]:
        """Return the mean of each task's distribution."""
        return self.alphas / (self.alphas + self.betas)

    def update(self, indices: Sequence[int], pass_rates: Sequence[float]) -> None:
        """Take note of the pass rates of some tasks."""
        rows, rates = np.asarray(indices, dtype=int), np.asarray(pass_rates, dtype=np.float64)
        guess = self._guess(rows, rates)
        if self.adaptive_rho and float(np.abs(guess[rows] - rates).mean()) >= _FAR_OFF:
            self.rho /= 2
        guess[rows] = rates
        passed, failed = np.zeros(len(guess)), np.zeros(len(guess))
        passed[rows], failed[rows] = rates, 1.0 - rates
        kept, seen, expected = 1.0 - self.lamb, (1.0 - self.rho) * self.m, self.rho * self.m
        self.alphas = kept * self.alphas + self.lamb + seen * passed + expected * guess
        self.betas = kept * self.betas + self.lamb + seen * failed + expected * (1.0 - guess)

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned."""
        return {
            "alphas": self.alphas.tolist(),
            "betas": self.betas.tolist(),
            "rho": self.rho,
            "cap_coef": self.cap_coef,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what was learned."""
        self.alphas, self.betas = np.asarray(state["alphas"]), np.asarray(state["betas"])
        self.rho, self.cap_coef = state["rho"], state["cap_coef"]

    def _guess(self, rows: NDArray[np.int_], rates: NDArray[np.float64]) -> NDArray[np.float64]:
        weak, strong = self.weak[rows].mean(), self.strong[rows].mean()
        cap = float((rates.mean() - weak) / (strong - weak + 1e-6))
        last = self.cap_coef
        self.cap_coef = cap if last is None else _EMA * last + (1.0 - _EMA) * cap
        guess: NDArray[np.float64] = self.weak + (self.strong - self.weak) * self.cap_coef
        return guess.clip(0.0, 1.0)


class DifficultyBasedSelector:
    """The rows whose predicted pass rate is nearest to a target, learned from how tasks went.

    Args:
        num_rows: how many rows there are.
        seed: of the draw.
        features: two columns, the pass rates of a weak and of a strong model.
        target_reward: the pass rate to look for.
        m: see :class:`PassRateEstimator`, as lamb, rho and adaptive_rho.
        lamb: see there.
        rho: see there.
        adaptive_rho: see there.
        tau: 0: the nearest rows; above: rows are drawn with probability
            ``exp(-distance / tau)``, each once in a batch.
        do_sample: draw each task's pass rate from its distribution, instead of the mean.

    Raises:
        ValueError: there are not two columns.
    """

    def __init__(  # noqa: PLR0913 -- the options of the selector
        self,
        num_rows: int,
        *,
        seed: int = 42,
        features: Mapping[str, Sequence[float]],
        target_reward: float = 1.0,
        m: float = 16,
        lamb: float = 0.2,
        rho: float = 0.2,
        adaptive_rho: bool = False,
        tau: float = 0.0,
        do_sample: bool = False,
    ) -> None:
        if len(features) != 2:
            raise ValueError(
                f"task selector difficulty_based needs two feature_keys, got {list(features)}"
            )
        columns = np.asarray(list(features.values()), dtype=np.float64).T
        self.estimator = PassRateEstimator(
            columns, m=m, lamb=lamb, rho=rho, adaptive_rho=adaptive_rho
        )
        self.num_rows, self.seed, self.position = num_rows, seed, 0
        self.target_reward = target_reward
        self.tau = tau
        self.do_sample = do_sample

    @property
    def scores(self) -> NDArray[np.float64]:
        """Return how near each row's mean pass rate is to the target, at most 0."""
        scores: NDArray[np.float64] = -np.abs(self.target_reward - self.estimator.predicted)
        return scores

    def get_indices(self, count: int) -> list[int]:
        """Return so many different row numbers.

        Raises:
            ValueError: there are fewer rows.
        """
        if count > self.num_rows:
            raise ValueError(f"{count} different rows are asked for, there are {self.num_rows}")
        generator = np.random.default_rng(self.seed + self.position)
        self.position += count
        scores = self.scores
        if self.do_sample:
            drawn = generator.beta(self.estimator.alphas, self.estimator.betas)
            scores = -np.abs(self.target_reward - drawn)
        if self.tau > 0:  # the largest of scores with Gumbel noise are such a draw
            scores = scores / self.tau + generator.gumbel(size=self.num_rows)
        chosen: list[int] = np.argsort(-scores, kind="stable")[:count].tolist()
        return chosen

    def feedback(self, indices: list[int], values: list[float]) -> None:
        """Learn from how the tasks of these rows went."""
        if indices:
            self.estimator.update(indices, values)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and what was learned."""
        return {"position": self.position, "estimator": self.estimator.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.position = state["position"]
        self.estimator.load_state_dict(state["estimator"])
