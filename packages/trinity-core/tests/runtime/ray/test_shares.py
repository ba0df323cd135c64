"""Whoever is lost, and comes back or not, each order of a step is made, and by one at a time."""

from __future__ import annotations

import random

import pytest
from trinity.runtime.ray.shares import Shares


def test_each_has_the_tasks_of_its_number_and_all_of_a_task_stay_together() -> None:
    shares = Shares([0, 1, 2, 0, 1, 2], num_runners=2)

    assert shares.begin(0, num_free=2) == [0, 2, 3, 5]
    assert shares.begin(0, num_free=2) == []
    assert shares.begin(1, num_free=1) == [1, 4]


def test_those_that_are_free_divide_what_a_lost_one_left() -> None:
    shares = Shares(range(12), num_runners=3)
    shares.begin(0, num_free=3)
    assert shares.lost(0) == {0, 3, 6, 9}

    assert shares.begin(1, num_free=2) == [0, 1, 3, 4, 7, 10]
    assert shares.begin(2, num_free=1) == [2, 5, 6, 8, 9, 11]


def test_one_that_was_lost_takes_part_again_and_what_it_made_meanwhile_counts() -> None:
    shares = Shares([0, 1, 2, 3], num_runners=2)
    shares.begin(0, num_free=2)
    shares.begin(1, num_free=1)
    shares.lost(1)
    shares.made([3])  # it answered for one of its two as it was given up

    assert shares.begin(1, num_free=1) == [1]
    shares.ended(1)
    shares.ended(0)
    assert shares.are_made


@pytest.mark.parametrize("seed", range(60))
def test_none_is_lost_and_none_is_made_by_two_at_a_time(seed) -> None:
    dice = random.Random(seed)
    num_runners, num_tasks = dice.randint(2, 4), dice.randint(1, 9)
    tasks = [task for task in range(num_tasks) for _ in range(dice.randint(1, 3))]
    shares = Shares(tasks, num_runners=num_runners)
    making, made, lost = {}, [], set()
    for _ in range(2000):
        if shares.are_made:
            break
        one = dice.randrange(num_runners)
        if one in making and dice.random() < 0.5:
            left = [place for place in making[one] if dice.random() < 0.1]
            made += [place for place in making.pop(one) if place not in left]
            shares.ended(one, left=left)
        elif one not in lost and dice.random() < 0.2 and len(lost) < num_runners - 1:
            lost.add(one)
            assert shares.lost(one) >= set(making.pop(one, []))
        elif one in lost:
            lost.discard(one)
        elif one not in making:
            free = [n for n in range(num_runners) if n not in lost and n not in making]
            places = shares.begin(one, num_free=len(free))
            assert not set(places) & {place for own in making.values() for place in own}
            making |= {one: places} if places else {}

    assert shares.are_made
    assert sorted(made) == list(range(len(tasks)))
