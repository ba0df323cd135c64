"""Which groups have a place, and which of them are trained next."""

from __future__ import annotations

import random

import pytest
from trinity.common.experience import EID
from trinity.explorer.flight import Flight, FlightPlan, has_ended


def a_flight(*, batch_size=2, capacity=4, window=1):
    return Flight(FlightPlan(batch_size=batch_size, capacity=capacity, window=window))


def begin_all(flight):
    while flight.has_room:
        flight.begin(task={})


def test_in_strict_order_a_batch_waits_for_its_oldest_group() -> None:
    flight = a_flight(window=1)
    begin_all(flight)
    for number in (3, 2, 1):
        flight.ended(number)

    assert flight.takeable() == []

    flight.ended(0)

    assert flight.takeable() == [0, 1]


def test_a_group_is_overtaken_by_those_in_the_window_and_by_no_others() -> None:
    flight = a_flight(batch_size=2, capacity=6, window=3)
    begin_all(flight)
    for number in (1, 2, 3, 4):
        flight.ended(number)
    flight.take(flight.takeable())

    assert flight.waiting == {3, 4}
    assert flight.takeable() == []  # 0 lets 1 and 2 go before it

    flight.ended(0)

    assert flight.takeable() == [0, 3]


def test_a_dropped_group_holds_nobody_up_and_leaves_its_place() -> None:
    flight = a_flight(window=1)
    begin_all(flight)
    flight.dropped(0)
    for number in (1, 2):
        flight.ended(number)

    assert flight.has_room
    assert flight.begin(task={}) == 4
    assert flight.takeable() == [1, 2]


def test_a_place_is_free_once_the_engines_have_what_was_trained_on_the_group() -> None:
    flight = a_flight(window=1)
    begin_all(flight)
    for number in range(4):
        flight.ended(number)
    flight.take(flight.takeable())

    assert not flight.has_room

    flight.loaded(1)

    assert flight.has_room


@pytest.mark.parametrize("seed", range(40))
def test_no_group_is_older_than_the_bound_and_none_is_forgotten(seed) -> None:
    dice = random.Random(seed)
    batch_size, batches = dice.randint(1, 6), dice.randint(1, 5)
    interval = dice.randint(1, batches)
    capacity = batch_size * batches
    window = max(1, int(dice.random() * capacity))
    flight = a_flight(batch_size=batch_size, capacity=capacity, window=window)
    trained, ages, seen, dropped = 0, [], [], []
    for _ in range(1500):
        begin_all(flight)
        if flight.running:  # old ones end seldom: they are overtaken as far as may be
            number = dice.choice(sorted(flight.running)[-dice.choice((1, 2, capacity)) :])
            if dice.random() < 0.1:
                flight.dropped(number)
                dropped.append(number)
            else:
                flight.ended(number)
        numbers = flight.takeable()
        if len(numbers) == batch_size and dice.random() < 0.8:
            versions = [flight.versions[number] for number in numbers]
            flight.take(numbers)
            seen += numbers
            ages.append(max(trained - version for version in versions))
            trained += 1
            if trained % interval == 0:
                flight.loaded(trained)

    assert max(ages) <= flight.plan.most_age
    assert trained > 50
    known = [*seen, *dropped, *flight.running, *flight.waiting]
    assert sorted(known) == list(range(flight.num_begun))


def test_groups_that_were_on_their_way_are_so_again_with_the_weights_of_then() -> None:
    flight, again = a_flight(window=1), a_flight(window=1)
    for number in range(4):
        flight.begin(task={"taskset_id": 0, "index": 10 + number})
    flight.ended(1)
    again.load_state_dict(flight.state_dict())

    assert again.running == {n: {"taskset_id": 0, "index": 10 + n} for n in (0, 2, 3)}
    assert again.waiting == {1}
    assert again.begin(task={}) == 4


def test_a_start_with_other_settings_keeps_the_bound_of_the_groups_that_were_open() -> None:
    wide, narrow = a_flight(capacity=10, window=3), a_flight(capacity=4, window=1)
    begin_all(wide)
    for number in range(10):
        wide.ended(number)
    narrow.load_state_dict(wide.state_dict())

    third = a_flight(capacity=4, window=1)
    third.load_state_dict(narrow.state_dict())
    assert (third.widest.capacity, third.widest.window) == (10, 3)

    while third.waiting:
        third.take(third.takeable())
        third.loaded(1)
    begin_all(third)
    assert third.widest == third.plan


def test_weights_that_lack_a_step_that_was_trained_free_no_place() -> None:
    flight = a_flight(window=1)
    begin_all(flight)
    for number in range(4):
        flight.ended(number)
    flight.take(flight.takeable())
    flight.loaded(2, is_all=False)

    assert (flight.version, flight.has_room) == (2, False)


def test_what_a_workflow_keeps_apart_below_a_task_has_ended_with_its_group() -> None:
    flight = a_flight()
    begin_all(flight)
    flight.ended(3)

    own = [EID(batch=2, task=f"{task}-verdicts") for task in (0, 1)]
    assert [has_ended(eid, flight.state_dict()) for eid in own] == [False, True]
