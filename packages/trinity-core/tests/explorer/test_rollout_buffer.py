"""Groups: which hold a slot, and which of them are consumed next."""

from __future__ import annotations

import json
import random

import pytest
from trinity.common.experience import EID
from trinity.common.sync_policy import Consume, SyncPolicy
from trinity.explorer.rollout_buffer import RolloutBuffer, UnitState, has_ended


def of_groups(*, batch=2, max_active=4, window=1):
    policy = SyncPolicy(
        style="", consume=Consume.GROUPS, max_active=max_active, window=window, publish_every=1
    )
    return RolloutBuffer(policy, batch=batch)


def begin_all(buffer):
    while buffer.has_slot:
        buffer.begin()


def finish_all(buffer, *, left=1):
    for number in list(buffer.running):
        buffer.finish(number, left)


def rows_left(buffer):
    return {number: one.left for number, one in buffer.slots.items()}


def states(buffer):
    return {number: one.state for number, one in buffer.slots.items()}


def loaded(buffer, state):
    """Return a buffer that goes on from a state as a checkpoint holds it."""
    buffer.load_state_dict(json.loads(json.dumps(state)))
    return buffer


def test_in_strict_order_a_batch_waits_for_its_oldest_group() -> None:
    buffer = of_groups(window=1)
    begin_all(buffer)
    for number in (3, 2, 1):
        buffer.finish(number, 1)

    assert buffer.ready_groups() == []

    buffer.finish(0, 1)

    assert buffer.ready_groups() == [0, 1]


def test_a_group_is_overtaken_by_those_in_the_window_and_by_no_others() -> None:
    buffer = of_groups(batch=2, max_active=6, window=3)
    begin_all(buffer)
    for number in (1, 2, 3, 4):
        buffer.finish(number, 1)

    assert buffer.num_overtaken(buffer.ready_groups()) == 1
    assert buffer.consume_groups() == [1, 2]
    assert buffer.num_ready == 2  # 3 and 4
    assert buffer.ready_groups() == []  # 0 lets 1 and 2 go before it

    buffer.finish(0, 1)

    assert buffer.ready_groups() == [0, 3]


def test_fewer_groups_than_a_batch_are_those_that_are_there() -> None:
    buffer = of_groups(batch=3, max_active=3, window=1)
    begin_all(buffer)
    buffer.finish(0, 1)

    assert buffer.ready_groups() == [0]


def test_a_dropped_group_holds_nobody_up_and_its_slot_is_free() -> None:
    buffer = of_groups(window=1)
    begin_all(buffer)
    buffer.finish(0, 0)
    for number in (1, 2):
        buffer.finish(number, 1)

    assert buffer.has_slot
    assert buffer.begin().number == 4
    assert buffer.ready_groups() == [1, 2]


def test_the_slot_of_a_group_is_free_once_rollouts_have_what_was_trained_on_it() -> None:
    buffer = of_groups(window=1)
    begin_all(buffer)
    finish_all(buffer)
    buffer.consume_groups()

    assert not buffer.has_slot

    buffer.weights_synced(version=1)

    assert buffer.has_slot
    assert sorted(buffer.slots) == [2, 3]


def test_weights_that_lack_a_step_that_was_trained_free_no_slot() -> None:
    buffer = of_groups(window=1)
    begin_all(buffer)
    finish_all(buffer)
    buffer.consume_groups()
    buffer.weights_synced(version=2, frees=False)

    assert (buffer.version, buffer.has_slot) == (2, False)


def test_a_unit_has_the_weights_of_the_sync_before_its_beginning() -> None:
    buffer = of_groups(max_active=3)
    buffer.begin()
    buffer.weights_synced(version=5)
    buffer.begin()

    assert [one.version for one in buffer.slots.values()] == [0, 5]


def test_the_oldest_weights_are_those_of_groups_that_were_not_consumed() -> None:
    buffer = of_groups(batch=1, max_active=3)
    buffer.begin()
    buffer.weights_synced(version=2)
    buffer.begin()
    finish_all(buffer)

    assert buffer.off_policy_steps(6) == 6  # group 0, with version 0

    buffer.consume_groups()

    assert buffer.off_policy_steps(6) == 4  # group 1, with version 2


def test_groups_are_wanted_that_were_begun_and_not_dropped() -> None:
    buffer = of_groups(batch=1, max_active=4)
    begin_all(buffer)
    buffer.finish(0, 1)
    buffer.finish(1, 0)  # dropped
    buffer.consume_groups()

    assert buffer.num_wanted == 3
    assert buffer.num_consumed == 1


def test_a_group_that_was_consumed_and_not_trained_is_ready_again() -> None:
    buffer = of_groups(batch=2, max_active=4, window=2)
    begin_all(buffer)
    for number, left in ((1, 5), (0, 3), (2, 1)):
        buffer.finish(number, left)
    buffer.consume_groups()
    buffer.put_back(1)  # whatever the count: the whole batch

    assert rows_left(buffer) == {0: 3, 1: 5, 2: 1, 3: 0}
    assert buffer.ready_groups() == [0, 1]
    assert (buffer.num_consumed, buffer.num_wanted) == (0, 4)


def test_what_was_put_back_is_not_put_back_twice() -> None:
    buffer = of_groups(batch=1)
    begin_all(buffer)
    finish_all(buffer)
    buffer.consume_groups()
    buffer.put_back(1)
    buffer.put_back(1)

    assert (buffer.num_consumed, buffer.num_ready) == (0, 4)


@pytest.mark.parametrize("seed", range(40))
def test_no_group_is_older_than_the_bound_and_none_is_forgotten(seed) -> None:
    dice = random.Random(seed)
    batch, batches = dice.randint(1, 6), dice.randint(1, 5)
    interval = dice.randint(1, batches)
    max_active = batch * batches
    window = max(1, int(dice.random() * max_active))
    buffer = of_groups(batch=batch, max_active=max_active, window=window)
    trained, ages, seen, dropped = 0, [], [], []
    for _ in range(1500):
        begin_all(buffer)
        if running := sorted(buffer.running):  # old ones end seldom: they are overtaken
            number = dice.choice(running[-dice.choice((1, 2, max_active)) :])
            left = 0 if dice.random() < 0.1 else 1
            buffer.finish(number, left)
            dropped += [] if left else [number]
        numbers = buffer.ready_groups()
        if len(numbers) == batch and dice.random() < 0.8:
            versions = [buffer.slots[number].version for number in numbers]
            assert buffer.consume_groups() == numbers
            if dice.random() < 0.1:  # a train step that failed
                buffer.put_back(batch)
                continue
            seen += numbers
            ages.append(max(trained - version for version in versions))
            trained += 1
            if trained % interval == 0:
                buffer.weights_synced(version=trained)

    assert max(ages) <= buffer.policy.max_off_policy_steps(batch=batch, most=1)
    assert trained > 50
    held = [number for number, state in states(buffer).items() if state is not UnitState.CONSUMED]
    assert sorted([*seen, *dropped, *held]) == list(range(buffer.begun + 1))
    assert (buffer.num_consumed, buffer.num_wanted) == (len(seen), len(seen) + len(held))


def test_what_a_workflow_keeps_apart_below_a_task_has_ended_with_its_group() -> None:
    buffer = of_groups()
    begin_all(buffer)
    buffer.finish(3, 1)

    own = [EID(batch=2, task=f"{task}-verdicts") for task in (0, 1)]
    assert [has_ended(eid, buffer.state_dict()) for eid in own] == [False, True]


def test_groups_that_ran_run_again_under_their_numbers_with_their_tasks() -> None:
    buffer = of_groups(window=1)
    for number in range(4):
        buffer.begin(task={"taskset_id": 0, "index": 10 + number})
    buffer.finish(1, 3)
    again = loaded(of_groups(window=1, max_active=5), buffer.state_dict())

    assert {n: one.task for n, one in again.running.items()} == {
        n: {"taskset_id": 0, "index": 10 + n} for n in (0, 2, 3)
    }
    assert (again.num_ready, again.slots[1].left) == (1, 3)
    assert again.begin().number == 4


def test_groups_that_were_consumed_hold_their_slots_until_the_first_sync() -> None:
    buffer = of_groups(window=1)
    begin_all(buffer)
    finish_all(buffer)
    buffer.consume_groups()
    again = loaded(of_groups(window=1), buffer.state_dict())

    assert (again.has_slot, again.num_consumed, again.num_wanted) == (False, 2, 4)

    again.weights_synced(version=1)

    assert list(again.slots) == [2, 3]


def test_a_start_with_other_settings_keeps_the_bound_of_the_groups_that_were_there() -> None:
    wide, narrow = of_groups(max_active=10, window=3), of_groups(max_active=4, window=1)
    begin_all(wide)
    finish_all(wide)
    loaded(narrow, wide.state_dict())

    third = loaded(of_groups(max_active=4, window=1), narrow.state_dict())
    assert (third.widest_policy.max_active, third.widest_policy.window) == (10, 3)
    # while what one may begin is what is asked for now
    assert (third.policy.max_active, third.has_slot) == (4, False)

    while third.num_ready:
        third.consume_groups()
        third.weights_synced(version=1)
    begin_all(third)
    assert third.widest_policy == third.policy


def test_a_wider_start_than_the_one_before_is_as_wide_as_it_is() -> None:
    narrow, wide = of_groups(max_active=4, window=2), of_groups(max_active=10, window=1)
    begin_all(narrow)
    loaded(wide, narrow.state_dict())

    assert (wide.widest_policy.max_active, wide.widest_policy.window) == (10, 2)


def test_a_state_says_what_it_is_of() -> None:
    state = of_groups(batch=2, max_active=6, window=3).state_dict()

    assert (state["consume"], state["batch"]) == ("groups", 2)
    assert (state["max_active"], state["window"]) == (6, 3)
    assert state["begun"] == -1  # groups are counted from 0


def ready_by_search(buffer):
    """Return the groups of the next batch by the definition: one after the other, in the window."""
    waiting = [n for n, one in buffer.slots.items() if one.state is not UnitState.CONSUMED]
    found = []
    while waiting and len(found) < buffer.batch:
        ready = [n for n in waiting if buffer.slots[n].state is UnitState.READY]
        if not ready or ready[0] > waiting[0] + buffer.policy.window - 1:
            break
        found.append(ready[0])
        waiting.remove(ready[0])
    return found


def step_at_random(buffer, draw):
    choice = draw.random()
    running = sorted(buffer.running)
    if choice < 0.4 and buffer.has_slot:
        buffer.begin()
    elif choice < 0.75 and running:
        buffer.finish(draw.choice(running), draw.choice([0, 1, 3]))
    elif choice < 0.9:
        buffer.consume_groups()
        if draw.random() < 0.3:
            buffer.put_back(0)
    else:
        buffer.weights_synced(version=buffer.version + 1)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_what_is_counted_along_the_way_is_what_a_search_finds(window) -> None:
    draw = random.Random(window)
    buffer = of_groups(batch=2, max_active=8, window=window)
    num_found = 0

    for _ in range(2000):
        step_at_random(buffer, draw)
        held = [one.state for one in buffer.slots.values()]

        assert buffer.ready_groups() == ready_by_search(buffer)
        assert buffer.num_running == held.count(UnitState.RUNNING) == len(buffer.running)
        assert buffer.num_ready == held.count(UnitState.READY)
        num_found += len(buffer.ready_groups())

    assert num_found > 100
    again = loaded(of_groups(batch=2, max_active=8, window=window), buffer.state_dict())
    assert (again.running.keys(), again.num_ready) == (buffer.running.keys(), buffer.num_ready)
