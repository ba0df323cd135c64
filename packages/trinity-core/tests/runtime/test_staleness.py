"""The off-policy steps of what is trained are told, and more than the policy allows is an error."""

from __future__ import annotations

import pytest
from trinity.common.sync_policy import Consume, Frees, SyncPolicy
from trinity.errors import TrinityError
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.observers import Staleness


def of_groups(*, max_active=24, window=7):
    """Return a buffer of batches of 8; with three and a window of 7 at most 3 steps."""
    policy = SyncPolicy(style="", consume=Consume.GROUPS, max_active=max_active, window=window)
    return RolloutBuffer(policy, batch=8)


def of_steps(*, max_active=2, pull_every=None):
    policy = SyncPolicy(
        style="",
        consume=Consume.ROWS,
        max_active=max_active,
        pull_every=pull_every,
        frees=Frees.TRAIN_STEP,
    )
    return RolloutBuffer(policy, batch=4)


def of_rounds(*, interval=1, offset=0):
    policy = SyncPolicy(
        style="", consume=Consume.ROUNDS, max_active=interval + offset, pull_every=interval
    )
    return RolloutBuffer(policy, batch=4)


def overlapped(buffer, *, is_bound=True):
    return Staleness(buffer, in_turns=False, is_bound=is_bound)


def of_versions(oldest, mean):
    return {"sample/model_version/min": float(oldest), "sample/model_version/mean": float(mean)}


def test_off_policy_steps_are_the_steps_done_less_the_version() -> None:
    metrics = overlapped(of_groups()).of_step(7, of_versions(4, 5.5), num_rows=8)

    assert metrics == {"age/max": 2.0, "age/mean": 0.5}


def test_a_group_older_than_the_bound_is_a_fault_that_is_told() -> None:
    staleness = overlapped(of_groups())
    staleness.of_step(7, of_versions(3, 3), num_rows=8)

    with pytest.raises(TrinityError, match=r"a group .*none can be more than 3 old .*window"):
        staleness.of_step(8, of_versions(3, 3), num_rows=8)


def test_groups_of_an_earlier_start_may_be_as_old_as_they_could_be_then() -> None:
    # at most 3 now, and five batches with a window of 1 then: at most 4
    then, now = of_groups(max_active=40, window=1), of_groups()
    for _ in range(18):
        then.finish(then.begin().number, 1)
    now.load_state_dict(then.state_dict())
    staleness = overlapped(now)
    staleness.resumed(then.state_dict(), train_steps=4)

    # 18 groups, and 6 that overtake the last: three steps, with 40 slots and a window of 7
    assert staleness.of_step(5, of_versions(0, 0), num_rows=8)["age/max"] == 4.0
    staleness.of_step(7, of_versions(1, 1), num_rows=8)  # 5: with 40 slots and a window of 7
    with pytest.raises(TrinityError, match="none can be more than 3 old"):
        staleness.of_step(8, of_versions(3, 3), num_rows=8)


def test_of_rollout_steps_ahead_nothing_is_older_than_the_slots_let_it_be() -> None:
    staleness = overlapped(of_steps(max_active=2))
    staleness.explored(8)  # two batches a step: at most 3 of the 4 in two steps lie before the last
    assert staleness.of_step(4, of_versions(0, 0), num_rows=4)["age/max"] == 3.0

    with pytest.raises(TrinityError, match=r"none can be more than 3 old .*sync_interval"):
        staleness.of_step(5, of_versions(0, 0), num_rows=4)


def test_the_longest_rollout_step_so_far_counts() -> None:
    staleness = overlapped(of_steps(max_active=2))
    for count in (4, 8, 4):
        staleness.explored(count)
    staleness.of_step(4, of_versions(0, 0), num_rows=4)

    with pytest.raises(TrinityError, match="none can be more than 3 old"):
        staleness.of_step(5, of_versions(0, 0), num_rows=4)


@pytest.mark.parametrize(
    ("counts", "most"),
    [
        ((4,), 0),
        ((4, 3), 1),  # three rows that are no batch may lie before the four of a step
        ((4, 2), 1),  # two
        ((2,), 0),  # a batch is full with the second step, before which nothing is trained
    ],
)
def test_rows_that_make_no_batch_may_lie_before_those_of_the_next_step(counts, most) -> None:
    staleness = overlapped(of_steps(max_active=1))
    for count in counts:
        staleness.explored(count)
    staleness.of_step(1 + most, of_versions(0, 0), num_rows=4)

    with pytest.raises(TrinityError, match=f"none can be more than {most} old"):
        staleness.of_step(2 + most, of_versions(0, 0), num_rows=4)


def test_in_turns_nothing_is_older_than_with_one_slot_and_nothing_is_told() -> None:
    staleness = Staleness(of_steps(max_active=3), in_turns=True, is_bound=True)
    staleness.explored(4)

    assert staleness.of_step(1, of_versions(0, 0), num_rows=4) == {}
    with pytest.raises(TrinityError, match="none can be more than 0 old"):
        staleness.of_step(2, of_versions(0, 0), num_rows=4)


@pytest.mark.parametrize(
    ("interval", "offset", "most"), [(1, 0, 0), (1, 1, 1), (2, 0, 1), (2, 1, 2)]
)
def test_the_rows_of_a_round_are_bounded_too_and_nothing_is_told(interval, offset, most) -> None:
    for in_turns in (True, False):
        buffer = of_rounds(interval=interval, offset=offset)
        staleness = Staleness(buffer, in_turns=in_turns, is_bound=True)
        staleness.explored(4)

        assert staleness.of_step(1 + most, of_versions(0, 0), num_rows=4) == {}
        with pytest.raises(TrinityError, match=f"none can be more than {most} old"):
            staleness.of_step(2 + most, of_versions(0, 0), num_rows=4)


def test_what_a_strategy_that_somebody_brought_reads_may_be_of_any_age() -> None:
    staleness = overlapped(of_steps(), is_bound=False)  # it may have waited for more
    staleness.explored(4)

    assert staleness.of_step(9, of_versions(0, 0), num_rows=4)["age/max"] == 8.0


def test_rows_whose_weights_nobody_knows_have_no_age() -> None:
    assert overlapped(of_groups()).of_step(9, {}, num_rows=8) == {}


def test_rollout_steps_of_an_earlier_start_may_have_had_other_settings() -> None:
    then, now = of_steps(max_active=3), of_steps(max_active=1, pull_every=1)
    for _ in range(2):
        then.finish(then.begin().number, 4)
    now.load_state_dict(then.state_dict())
    staleness = overlapped(now)
    staleness.resumed(then.state_dict(), train_steps=4)
    finish_step(now, staleness, 4)  # before the first sync
    for step in (5, 6):
        train(now, staleness, step, of_versions(0, 0), num_rows=4)
    sync(now, staleness, version=6)
    finish_step(now, staleness, 4)
    train(now, staleness, 7, of_versions(0, 0), num_rows=4)

    with pytest.raises(TrinityError, match="none can be more than 0 old"):
        train(now, staleness, 8, of_versions(0, 0), num_rows=4)


def test_rows_that_share_a_round_with_those_of_an_earlier_start_may_be_older() -> None:
    now = of_rounds(interval=2, offset=0)
    then = of_rounds(interval=3, offset=0)  # of whose second round two rows are left
    for left in (0, 0, 0, 0, 0, 2):
        then.finish(then.begin().number, left)
    now.load_state_dict(then.state_dict())
    staleness = Staleness(now, in_turns=True, is_bound=True)
    staleness.resumed(then.state_dict(), train_steps=3)
    staleness.synced()
    for _ in range(2):
        finish_step(now, staleness, 2)  # 7 and 8
    train(now, staleness, 4, of_versions(2, 2.5), num_rows=4)  # of 6 and 7
    train(now, staleness, 5, of_versions(3, 3), num_rows=2)  # of 8: a step old

    sync(now, staleness, version=5)
    for _ in range(2):
        finish_step(now, staleness, 2)
    train(now, staleness, 6, of_versions(5, 5), num_rows=4)
    with pytest.raises(TrinityError, match="none can be more than 0 old"):
        train(now, staleness, 7, of_versions(5, 5), num_rows=4)


def test_rollouts_that_began_when_many_rows_of_an_earlier_start_were_left_may_be_older() -> None:
    now = of_rounds(interval=1, offset=1)
    then = of_rounds(interval=3, offset=2)
    for _ in range(5):
        then.finish(then.begin().number, 2)
    now.load_state_dict(then.state_dict())
    staleness = Staleness(now, in_turns=True, is_bound=True)
    staleness.resumed(then.state_dict(), train_steps=0)
    train(now, staleness, 1, of_versions(0, 0), num_rows=2)  # of 1
    sync(now, staleness, version=1)
    finish_step(now, staleness, 2)  # 6
    train(now, staleness, 2, of_versions(0, 0), num_rows=4)
    train(now, staleness, 3, of_versions(0, 0), num_rows=4)  # of 4 and 5
    sync(now, staleness, version=3)
    finish_step(now, staleness, 2)  # 7
    train(now, staleness, 4, of_versions(1, 1), num_rows=2)  # of 6: two steps old
    sync(now, staleness, version=4)
    finish_step(now, staleness, 2)  # 8
    train(now, staleness, 5, of_versions(3, 3), num_rows=2)  # of 7: a step old, as it may be

    with pytest.raises(TrinityError, match="none can be more than 1 old"):
        train(now, staleness, 6, of_versions(3, 3), num_rows=2)


def finish_step(buffer, staleness, left):
    buffer.finish(buffer.begin().number, left)
    staleness.explored(left)


def train(buffer, staleness, step, versions, *, num_rows):
    buffer.consume_rows(num_rows)
    staleness.of_step(step, versions, num_rows=num_rows)


def sync(buffer, staleness, *, version):
    buffer.weights_synced(version=version)
    staleness.synced()
