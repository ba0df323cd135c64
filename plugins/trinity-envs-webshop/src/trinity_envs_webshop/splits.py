"""Divide the goals into test, evaluation and training, without a leak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity_envs_webshop.goal import Goal

__all__ = ["Splits", "splits_of"]

_TEST_ENDS, _EVALUATION_ENDS, _ENOUGH = 500, 1500, 3000


@dataclass(frozen=True)
class Splits:
    """Positions of goals after the shuffle with the fixed seed."""

    test: list[int]
    evaluation: list[int]
    train: list[int]
    num_repeated: int  # left out of training: they ask for the same as a goal that is held out
    is_shrunk: bool  # there are fewer goals than the published splits need


def splits_of(goals: Sequence[Goal]) -> Splits:
    """Return the published splits: [0, 500) test, [500, 1500) evaluation, the rest training.

    Where there are fewer than 3,000 goals, the same shares: a sixth and a third. Goals that ask for
    the same as one that is held out, in other positions, are left out of training.
    """
    num_goals = len(goals)
    is_shrunk = num_goals < _ENOUGH
    test_ends = num_goals * _TEST_ENDS // _ENOUGH if is_shrunk else _TEST_ENDS
    evaluation_ends = num_goals * _EVALUATION_ENDS // _ENOUGH if is_shrunk else _EVALUATION_ENDS
    held_out = {_wish(goals[index]) for index in range(evaluation_ends)}
    rest = range(evaluation_ends, num_goals)
    train = [index for index in rest if _wish(goals[index]) not in held_out]
    return Splits(
        test=list(range(test_ends)),
        evaluation=list(range(test_ends, evaluation_ends)),
        train=train,
        num_repeated=len(rest) - len(train),
        is_shrunk=is_shrunk,
    )


def _wish(goal: Goal) -> tuple[str, ...]:
    """Return what is asked for, without the price bound."""
    options = goal.goal_options
    pairs = sorted(options.items()) if isinstance(options, dict) else [("", o) for o in options]
    return (goal.asin, *goal.attributes, *(f"{name}\n{value}" for name, value in pairs))
