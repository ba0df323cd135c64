"""pass@k and mean@k, by hand."""

from __future__ import annotations

import pytest
from trinity_lab.pass_at_k import pass_at_k, scores_of


@pytest.mark.parametrize(
    ("num", "num_passed", "k", "chance"),
    [
        (4, 0, 2, 0.0),
        (4, 1, 1, 1 / 4),
        (4, 1, 2, 1 / 2),  # 1 - C(3, 2) / C(4, 2) = 1 - 3 / 6
        (4, 2, 2, 5 / 6),  # 1 - 1 / 6
        (4, 3, 2, 1.0),
        (10, 3, 5, 1 - 21 / 252),
    ],
)
def test_the_chance_that_one_of_k_passes(num, num_passed, k, chance) -> None:
    assert pass_at_k(num, num_passed, k) == pytest.approx(chance)


def test_k_doubles_up_to_the_rollouts_of_a_task() -> None:
    rewards = {"0": [1.0, 0.0, 0.0, 0.5], "1": [1.0, 1.0, 0.0, 0.0], "2": [0.0, 1.0]}

    scores = {one.name: one.value for one in scores_of(rewards, num_repeats=4, passes_at=1.0)}

    assert scores == pytest.approx(
        {
            "mean@4": (0.375 + 0.5 + 0.5) / 3,
            "pass@1": (0.25 + 0.5 + 0.5) / 3,
            "pass@2": (0.5 + 5 / 6 + 1.0) / 3,
            "pass@4": 1.0,  # of the two tasks with four rollouts
        }
    )


def test_one_task_has_no_interval() -> None:
    assert scores_of({"0": [1.0]}, num_repeats=1, passes_at=1.0)[0].interval is None
