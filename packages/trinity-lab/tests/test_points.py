"""Which runs a sweep has."""

from __future__ import annotations

import math
from typing import Any

import pytest
from trinity.errors import ConfigError
from trinity_lab.points import axes_of, points_of, short_names


def labels(section: dict[str, Any], *, seed: int = 7) -> list[str]:
    return [point.label for point in points_of(axes_of(section, seed=seed))]


def test_a_grid_has_each_combination_with_each_seed() -> None:
    section = {"algorithm.optimizer.lr": [1e-4, 3e-4], "seed": 2}

    assert labels(section) == [
        "lr=0.0001-seed=7",
        "lr=0.0001-seed=8",
        "lr=0.0003-seed=7",
        "lr=0.0003-seed=8",
    ]


def test_seeds_can_be_named_and_more_of_them_begin_with_the_same() -> None:
    assert labels({"seed": [3, 1]}) == ["seed=3", "seed=1"]
    assert labels({"seed": 5})[:2] == labels({"seed": 2})


def test_draws_are_in_their_range_and_more_draws_begin_with_the_same() -> None:
    section = {
        "algorithm.optimizer.lr": {"min": 1e-5, "max": 1e-3, "scale": "log"},
        "algorithm.policy_loss_fn": ["ppo", "gspo"],
    }
    few, many = (points_of(axes_of({**section, "num_draws": n}, seed=0)) for n in (3, 200))
    rates = [point.settings["algorithm.optimizer.lr"] for point in many]

    assert [point.settings for point in many[:3]] == [point.settings for point in few]
    assert min(rates) >= 1e-5
    assert max(rates) <= 1e-3
    assert math.exp(sum(map(math.log, rates)) / len(rates)) == pytest.approx(1e-4, rel=0.2)


def test_names_of_keys_are_as_short_as_they_can_be_told_apart() -> None:
    keys = ["algorithm.optimizer.lr", "trainer.critic.optimizer.lr", "buffer.batch_size"]

    assert list(short_names(keys).values()) == [
        "algorithm.optimizer.lr",
        "critic.optimizer.lr",
        "batch_size",
    ]


@pytest.mark.parametrize(
    ("section", "count"),
    [
        ({"a": list(range(101)), "seed": 100}, "10,100"),
        ({"a": list(range(2)), "num_draws": 101, "seed": 100}, "10,100"),
        ({"seed": 10**18}, "1,000,000,000,000,000,000"),
    ],
)
def test_more_runs_than_anybody_means_are_refused_at_once(section: dict[str, Any], count) -> None:
    with pytest.raises(ConfigError, match=f"would make {count} runs, and 10,000 are the most"):
        labels(section)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({}, "nothing to sweep over"),
        ({"algorithm.optimizer.lr": 1e-4}, "Write a list of values"),
        ({"algorithm.optimizer.lr": {"min": 0, "max": 1}}, "a range, which a grid has no values"),
        ({"lr": {"min": 0, "max": 1, "scale": "log"}, "num_draws": 2}, "begins above 0"),
        ({"lr": {"min": 2, "max": 1}, "num_draws": 2}, "min < max"),
        ({"seed": 0}, "how many there are"),
        ({"seed": [1, 1]}, "would be named 'seed=1'"),
        ({"num_draws": 3, "seed": 2}, "only seeds are given"),
        ({"num_draws": -1, "lr": [1]}, "number of random draws"),
    ],
)
def test_what_is_no_sweep_is_refused(section: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        points_of(axes_of(section, seed=0))
