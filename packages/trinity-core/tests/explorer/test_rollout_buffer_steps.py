"""Rollout steps: which hold a slot, and whose rows are consumed next."""

from __future__ import annotations

import json

from trinity.common.sync_policy import Consume, Frees, SyncPolicy
from trinity.explorer.rollout_buffer import RolloutBuffer, UnitState


def of_steps(*, batch=4, max_active=3, frees=Frees.TRAIN_STEP, gives_again=False):
    """Return one whose units are rollout steps; rows are consumed across them."""
    policy = SyncPolicy(style="", consume=Consume.ROWS, max_active=max_active, frees=frees)
    return RolloutBuffer(policy, batch=batch, gives_again=gives_again)


def of_rounds(*, interval=2, offset=1):
    policy = SyncPolicy(
        style="", consume=Consume.ROUNDS, max_active=interval + offset, pull_every=interval
    )
    return RolloutBuffer(policy, batch=4)


def step(buffer, left):
    """Begin and end a rollout step; return its number."""
    number = buffer.begin().number
    buffer.finish(number, left)
    return number


def rows_left(buffer):
    return {number: one.left for number, one in buffer.slots.items()}


def states(buffer):
    return {number: one.state for number, one in buffer.slots.items()}


def loaded(buffer, state):
    """Return a buffer that goes on from a state as a checkpoint holds it."""
    buffer.load_state_dict(json.loads(json.dumps(state)))
    return buffer


def test_rollout_steps_are_counted_from_1() -> None:
    assert [of_steps().begin().number, of_rounds().begin().number] == [1, 1]


def test_rows_are_consumed_oldest_first_across_rollout_steps() -> None:
    buffer = of_steps()
    for left in (3, 2, 4):
        step(buffer, left)
    buffer.consume_rows(4)

    assert rows_left(buffer) == {2: 1, 3: 4}
    assert buffer.num_rows() == 5
    assert buffer.num_rows(last=2) == 1


def test_rows_of_later_steps_than_the_last_are_not_consumed() -> None:
    buffer = of_rounds()
    for left in (1, 2, 4):
        step(buffer, left)
    buffer.consume_rows(7, last=2)

    assert rows_left(buffer) == {1: 0, 2: 0, 3: 4}


def test_a_slot_is_free_after_the_train_step_that_consumed_the_last_row() -> None:
    buffer = of_steps(max_active=2)
    step(buffer, 4)
    step(buffer, 4)
    buffer.consume_rows(3)

    assert not buffer.has_slot

    buffer.consume_rows(1)

    assert buffer.has_slot


def test_a_slot_is_free_after_the_sync_where_weights_have_to_come_first() -> None:
    buffer = of_steps(max_active=2, frees=Frees.WEIGHT_SYNC)
    step(buffer, 4)
    buffer.begin()
    buffer.consume_rows(4)

    assert not buffer.has_slot

    buffer.weights_synced(version=1)

    assert list(buffer.slots) == [2]  # it still runs


def test_an_empty_rollout_step_holds_its_slot_until_older_ones_are_consumed() -> None:
    buffer = of_steps(max_active=3)
    for left in (4, 0, 0):
        step(buffer, left)

    assert not buffer.has_slot

    buffer.consume_rows(4)

    assert buffer.slots == {}


def test_an_empty_rollout_step_that_is_the_oldest_holds_no_slot() -> None:
    buffer = of_steps(max_active=1)
    step(buffer, 0)

    assert buffer.has_slot


def test_the_sync_of_a_round_frees_the_slots_of_the_round_alone() -> None:
    buffer = of_rounds(interval=2, offset=1)
    for left in (4, 0, 0):
        step(buffer, left)
    buffer.consume_rows(4, last=2)
    buffer.weights_synced(version=1, last=2)

    assert list(buffer.slots) == [3]  # empty, but of the next round


def test_rows_that_the_storage_gave_up_are_consumed_by_nobody() -> None:
    buffer = of_steps()
    step(buffer, 3)
    step(buffer, 4)
    buffer.drop_rows(5)
    buffer.consume_rows(2)
    buffer.put_back(2)

    assert rows_left(buffer) == {2: 2}


def test_rows_are_put_back_where_they_were_across_steps() -> None:
    buffer = of_steps(frees=Frees.WEIGHT_SYNC)
    for left in (3, 2, 4):
        step(buffer, left)
    buffer.consume_rows(6)
    buffer.put_back(6)

    assert rows_left(buffer) == {1: 3, 2: 2, 3: 4}


def test_of_a_batch_that_came_in_parts_all_parts_are_put_back() -> None:
    buffer = of_steps()
    step(buffer, 3)
    step(buffer, 5)
    buffer.consume_rows(2)
    buffer.consume_rows(2)
    buffer.put_back(4)

    assert rows_left(buffer) == {1: 3, 2: 5}


def test_of_a_part_that_is_put_back_the_youngest_rows_are_ready_again() -> None:
    buffer = of_steps()
    step(buffer, 3)
    step(buffer, 2)
    buffer.consume_rows(4)
    buffer.put_back(2)  # one of each step

    assert rows_left(buffer) == {1: 1, 2: 2}


def test_a_slot_that_was_free_is_held_again_when_its_rows_are_put_back() -> None:
    buffer = of_steps(max_active=2)
    step(buffer, 2)
    step(buffer, 2)
    buffer.consume_rows(3)
    assert buffer.has_slot
    buffer.put_back(3)

    assert not buffer.has_slot
    assert states(buffer) == {1: UnitState.READY, 2: UnitState.READY}


def test_a_batch_that_was_trained_is_not_put_back() -> None:
    buffer = of_steps(frees=Frees.WEIGHT_SYNC)
    step(buffer, 6)
    buffer.consume_rows(2)
    buffer.batch_trained()
    buffer.consume_rows(2)
    buffer.put_back(4)

    assert rows_left(buffer) == {1: 4}


def test_a_step_that_had_no_tasks_was_never_begun() -> None:
    buffer = of_steps(max_active=2)
    step(buffer, 4)
    buffer.cancel(buffer.begin().number)

    assert (buffer.begun, list(buffer.slots)) == (1, [1])
    assert buffer.begin().number == 2


def test_a_short_batch_is_filled_up_where_the_storage_gives_rows_again() -> None:
    again, once = of_steps(gives_again=True), of_steps()
    for buffer in (again, once):
        step(buffer, 5)

    assert again.available(there=20) == 8  # two batches of 4
    assert again.available(there=6) == 6  # no more than lie there
    assert once.available(there=20) == 5
    assert again.available(there=20, last=0) == 0


def test_who_waits_hears_of_each_end() -> None:
    buffer = of_steps()
    step(buffer, 4)
    step(buffer, 4)

    assert buffer.num_changes == 2


def test_a_rollout_step_that_ran_is_made_again_and_what_is_ready_stays() -> None:
    buffer = of_steps(max_active=3)
    step(buffer, 4)
    step(buffer, 3)
    buffer.begin()
    buffer.consume_rows(5)
    again = loaded(of_steps(max_active=3), buffer.state_dict())

    assert (again.begun, rows_left(again)) == (2, {2: 2})
    assert again.begin().number == 3


def test_the_steps_of_a_round_hold_their_slots_in_a_resumed_run_too() -> None:
    buffer = of_rounds(interval=2, offset=1)
    step(buffer, 4)
    step(buffer, 0)
    buffer.consume_rows(4, last=2)
    again = loaded(of_rounds(interval=2, offset=1), buffer.state_dict())

    assert rows_left(again) == {1: 0, 2: 0}
    assert again.has_slot  # for step 3, which is ahead of the round


def test_steps_of_a_round_go_on_as_steps_whose_slots_the_train_step_frees() -> None:
    buffer = of_rounds(interval=2, offset=1)
    for left in (4, 0, 3):
        step(buffer, left)
    buffer.consume_rows(4, last=2)
    again = loaded(of_steps(max_active=2), buffer.state_dict())

    assert rows_left(again) == {3: 3}
