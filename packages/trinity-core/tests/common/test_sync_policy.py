"""Each sync style is one row of a table, and what runs are told follows from it."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.sync_policy import Consume, Frees, SyncPolicy, begins_groups, policy_of

STYLES = ("fixed", "explorer_driven", "trainer_driven", "fully_async")


def a_config(style="fixed", *, mode="both", storage="queue", batch=8, **given):
    """Return a configuration; what is given is of ``synchronizer`` or of ``explorer``."""
    config = Config(mode=mode)
    config.synchronizer.sync_style = style
    config.buffer.batch_size = batch
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type=storage)
    for name, value in given.items():
        is_of_sync = name in type(config.synchronizer).model_fields
        setattr(config.synchronizer if is_of_sync else config.explorer, name, value)
    return config


def policy_with(style="fixed", **given):
    return policy_of(a_config(style, **given))


def fixed(interval=1, offset=0):
    return policy_with(sync_interval=interval, sync_offset=offset)


def explorer_driven(interval=1, slots=2):
    return policy_with("explorer_driven", sync_interval=interval, max_inflight_batches=slots)


def trainer_driven(interval=1, slots=2):
    return policy_with("trainer_driven", sync_interval=interval, max_inflight_batches=slots)


def fully_async(interval=1, batches=2, window=0.0, batch=8):
    given = {"max_inflight_batches": batches, "window": window, "batch": batch}
    return policy_with("fully_async", sync_interval=interval, **given)


def apart(explorer=1, trainer=1, slots=2):
    intervals = {"explorer_sync_interval": explorer, "trainer_sync_interval": trainer}
    return policy_with(mode="explore", storage="sql", max_inflight_batches=slots, **intervals)


# --- the table --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("style", "consume", "max_active", "window", "publish_every", "pull_every", "frees"),
    [
        # with interval 2, offset 3, at most 4 batches in flight, a window of 0.3, 8 groups a batch
        ("fixed", Consume.ROUNDS, 5, 1, 1, 2, Frees.WEIGHT_SYNC),
        ("explorer_driven", Consume.ROWS, 4, 1, 1, 2, Frees.TRAIN_STEP),
        ("trainer_driven", Consume.ROWS, 4, 1, 2, None, Frees.TRAIN_STEP),
        ("fully_async", Consume.GROUPS, 32, 9, 2, None, Frees.WEIGHT_SYNC),
    ],
)
def test_each_style_is_a_row_of_the_table(
    style, consume, max_active, window, publish_every, pull_every, frees
) -> None:
    config = a_config(
        style, sync_interval=2, sync_offset=3, max_inflight_batches=4, window=0.3, batch=8
    )

    assert policy_of(config) == SyncPolicy(
        style=style,
        consume=consume,
        max_active=max_active,
        window=window,
        publish_every=publish_every,
        pull_every=pull_every,
        frees=frees,
    )


@pytest.mark.parametrize("mode", ["explore", "train"])
@pytest.mark.parametrize("style", STYLES)
def test_standalone_runs_publish_and_pull_by_intervals_of_their_own_whatever_the_style(
    style, mode
) -> None:
    config = a_config(
        style,
        mode=mode,
        storage="sql",
        sync_interval=5,
        explorer_sync_interval=2,
        trainer_sync_interval=3,
        max_inflight_batches=4,
    )

    assert policy_of(config) == SyncPolicy(
        style=style,
        consume=Consume.ROWS,
        max_active=4,
        publish_every=3,
        pull_every=2,
        frees=Frees.WEIGHT_SYNC,
    )


@pytest.mark.parametrize("mode", ["explore", "train"])
def test_runs_over_a_ledger_that_wait_for_nobody_have_the_policy_of_their_style(mode) -> None:
    given = {"mode": mode, "storage": "sql", "standalone": False}

    assert policy_with(**given, sync_interval=2) == fixed(2)


def test_the_interval_of_a_side_comes_before_that_of_both() -> None:
    both = {"sync_interval": 5, "explorer_sync_interval": 2, "trainer_sync_interval": 3}

    assert policy_of(a_config("explorer_driven", **both)).pull_every == 2
    assert policy_of(a_config("trainer_driven", **both)).publish_every == 3
    assert policy_of(a_config("fully_async", **both)).publish_every == 5
    assert policy_of(a_config("fixed", **both)).pull_every == 5
    standalone = policy_of(a_config(mode="train", storage="sql", sync_interval=5))
    assert (standalone.publish_every, standalone.pull_every) == (5, 5)


@pytest.mark.parametrize("mode", ["explore", "train", "serve", "bench"])
def test_groups_begin_one_by_one_only_where_both_sides_are_in_one_run(mode) -> None:
    config = a_config("fully_async", mode=mode, sync_interval=2)

    assert policy_of(config) == policy_of(a_config("fixed", sync_interval=2))


def test_a_file_asks_for_groups_whatever_its_mode() -> None:
    for mode in ("both", "explore", "train", "serve"):
        assert begins_groups(a_config("fully_async", mode=mode))
    assert not any(begins_groups(a_config(style)) for style in STYLES[:3])


def test_a_window_is_one_group_at_least() -> None:
    assert [fully_async(batches=2, window=f, batch=2).window for f in (0.0, 0.2, 0.5, 1.0)] == [
        1, 1, 2, 4,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "answers"),
    [
        # in_rounds, in_groups, pulls_at_barrier, can_overlap, is_always_newest, is_bitwise,
        # in_order
        (fixed(1, 0), (True, False, True, False, True, True, True)),
        (fixed(2, 0), (True, False, True, True, False, True, True)),
        (fixed(1, 1), (True, False, True, True, False, True, True)),
        (explorer_driven(1), (False, False, True, True, True, False, True)),
        (explorer_driven(2), (False, False, True, True, False, False, True)),
        (trainer_driven(1), (False, False, False, True, True, False, True)),
        (trainer_driven(2), (False, False, False, True, False, False, True)),
        (fully_async(1), (False, True, False, True, False, False, True)),
        (fully_async(1, window=0.5), (False, True, False, True, False, False, False)),
    ],
)
def test_what_follows_from_a_policy(policy, answers) -> None:
    assert answers == (
        policy.in_rounds,
        policy.in_groups,
        policy.pulls_at_barrier,
        policy.can_overlap,
        policy.is_always_newest,
        policy.is_bitwise,
        policy.in_order,
    )


def test_only_rounds_have_an_offset() -> None:
    others = (explorer_driven(2, slots=4), trainer_driven(2, slots=4), fully_async(batches=4))

    assert [fixed(2, 0).offset, fixed(2, 3).offset] == [0, 3]
    assert [policy.offset for policy in others] == [0, 0, 0]


def test_in_turns_one_rollout_step_is_active_but_rounds_and_groups_stay() -> None:
    assert explorer_driven(3, slots=4).in_turns() == explorer_driven(3, slots=1)
    assert trainer_driven(3, slots=4).in_turns() == trainer_driven(3, slots=1)
    assert fixed(2, 1).in_turns() == fixed(2, 1)
    assert fully_async(batches=4).in_turns() == fully_async(batches=4)


# --- when weights move ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "offset", "points"),
    [
        (1, 0, [1, 2, 3]),
        (1, 2, [3, 4, 5]),
        (2, 0, [2, 4, 6]),
        (2, 1, [3, 5, 7]),
        (3, 4, [7, 10, 13]),
    ],
)
def test_a_round_is_trained_once_the_offset_is_ahead_of_it(interval, offset, points) -> None:
    policy = fixed(interval, offset)

    assert [policy.sync_point(number) for number in (1, 2, 3)] == points
    assert [policy.last_step_of_round(number) for number in (1, 2, 3)] == [
        point - offset for point in points
    ]


@pytest.mark.parametrize(
    ("interval", "offset", "steps"),
    [
        (2, 1, [0, 0, 0, 1, 1, 2, 2, 3]),  # after explore steps 0 to 7
        (1, 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        (1, 2, [0, 0, 0, 1, 2, 3, 4, 5]),
        (3, 0, [0, 0, 0, 1, 1, 1, 2, 2]),
    ],
)
def test_the_rounds_that_were_synced_follow_from_the_explore_step_of_the_last_sync(
    interval, offset, steps
) -> None:
    assert [fixed(interval, offset).rounds_before(step) for step in range(8)] == steps


@pytest.mark.parametrize(
    ("interval", "points"),
    [(1, [0, 1, 2, 3, 4, 5, 6]), (2, [0, 2, 2, 4, 4, 6, 6]), (3, [0, 3, 3, 3, 6, 6, 6])],
)
def test_weights_are_looked_for_after_whole_intervals_of_rollout_steps(interval, points) -> None:
    policy = explorer_driven(interval)

    assert [policy.pull_point(step) for step in range(7)] == points


@pytest.mark.parametrize(
    ("interval", "train_steps", "version", "is_published"),
    [
        (1, 0, 0, False), (1, 1, 0, True), (2, 1, 0, False), (2, 2, 0, True), (2, 3, 2, False),
        (2, 4, 3, True), (3, 4, 2, True), (3, 5, 3, False),
    ],
)  # fmt: skip
def test_weights_are_published_when_an_interval_is_full_that_rollouts_have_not(
    interval, train_steps, version, is_published
) -> None:
    for policy in (trainer_driven(interval), fully_async(interval), apart(trainer=interval)):
        found = policy.is_published(train_steps=train_steps, version=version)
        assert found is is_published


def test_the_explorer_that_decides_may_have_every_newer_version() -> None:
    policy = explorer_driven(3)

    assert policy.is_published(train_steps=5, version=4)
    assert not policy.is_published(train_steps=5, version=5)


# --- what is told before a run ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "given", "steps"),
    [
        # four rounds of 4 rows, batches of 3: each a whole one and a short one
        (fixed(1, 0), (4, 4, 3), 8),
        # the first round of 8 rows: 3; then 8 rows are left, of steps 3 and 4: 3
        (fixed(2, 1), (4, 4, 3), 6),
        # one round of 8 rows: 3; steps 3, 4 and 5: 12 rows, 4
        (fixed(2, 2), (5, 4, 3), 7),
        (fixed(2, 0), (5, 4, 8), 3),  # two rounds of one batch, and a short one
        (fixed(4, 0), (3, 4, 4), 3),  # no whole round
        (fixed(1, 8), (3, 4, 4), 3),  # all of it ahead
        # of rows only the last batch of the run is short
        (explorer_driven(1), (4, 4, 3), 6),
        (trainer_driven(3), (4, 4, 3), 6),
        (fully_async(), (4, 16, 16), 4),
        (trainer_driven(1), (1, 1, 9), 1),
    ],
)
def test_the_train_steps_of_a_run_of_which_nothing_is_dropped(policy, given, steps) -> None:
    num_steps, rows, batch = given

    found = policy.num_train_steps(num_steps=num_steps, rows=rows, batch=batch, refills=False)

    assert found == steps


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        (fixed(1, 0), 8),  # as without
        (fixed(2, 0), 6),
        (explorer_driven(1), 8),  # each step is a turn of 4 rows: 3, and 1 that is filled up
        (explorer_driven(2), 6),  # two turns of 8 rows
        (explorer_driven(3), 6),  # a turn of 12 rows: 4; a turn of 4: 2
        (trainer_driven(2), 8),  # it looks after each step
    ],
)
def test_where_short_batches_are_filled_up_each_turn_ends_in_one(policy, steps) -> None:
    assert policy.num_train_steps(num_steps=4, rows=4, batch=3, refills=True) == steps


@pytest.mark.parametrize(
    ("policy", "rows", "batch", "steps"),
    [
        (fixed(2, 3), 4, 4, 5),  # the round and the offset
        (fixed(2, 3), 1, 9, 5),
        (explorer_driven(3), 4, 4, 3),  # the last of three steps completes a batch
        (explorer_driven(3), 4, 8, 4),  # a step may be left over from before
        (explorer_driven(3), 4, 9, 5),
        (trainer_driven(3), 4, 4, 3),
        (trainer_driven(3), 4, 6, 5),  # 18 rows
        (trainer_driven(1), 4, 4, 1),
        (fully_async(2), 16, 16, 2),
    ],
)
def test_the_rollout_steps_that_a_buffer_must_hold_before_it_is_read(
    policy, rows, batch, steps
) -> None:
    assert policy.most_steps_waiting(rows=rows, batch=batch) == steps


# --- how old a row can be ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [explorer_driven, trainer_driven])
def test_with_one_batch_a_step_rows_are_as_old_as_the_slots_and_the_interval(kind) -> None:
    ages = [
        kind(interval, slots).max_off_policy_steps(batch=4, most=4)
        for interval, slots in [(1, 1), (1, 2), (2, 2), (3, 3)]
    ]

    assert ages == [0, 1, 2, 4]
    # three batches a step: all but the last batch of two steps
    assert kind(1, 2).max_off_policy_steps(batch=4, most=12) == 5
    # three rows that wait for another step's
    assert kind(1, 1).max_off_policy_steps(batch=4, most=4, most_over=3) == 1


def test_rows_of_rounds_are_as_old_as_the_rounds_that_are_active() -> None:
    def ages(batch, most):
        return [
            fixed(interval, offset).max_off_policy_steps(batch=batch, most=most)
            for interval, offset in [(1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (3, 4)]
        ]

    assert ages(4, 4) == [0, 1, 3, 1, 2, 6]
    # 5 rows a step in batches of 4: a round of one step has 2, of two 3, of three 4;
    # (3, 4): two rounds of 4, and a step of 2
    assert ages(4, 5) == [1, 3, 7, 2, 4, 9]


def test_groups_are_as_old_as_the_slots_and_the_window() -> None:
    def ages(window):
        return [
            fully_async(batches=n, window=window).max_off_policy_steps(batch=8, most=1)
            for n in (2, 3, 5)
        ]

    assert ages(0.3) == [2, 3, 6]
    assert ages(0.0) == [1, 2, 4]


def test_where_slots_are_held_until_weights_are_published_that_interval_makes_nothing_older() -> (
    None
):
    ages = [
        apart(trainer=publish, slots=3).max_off_policy_steps(batch=4, most=4) for publish in (1, 2)
    ]

    assert ages == [2, 2]


def test_weights_that_are_looked_for_seldom_make_rows_of_standalone_runs_older() -> None:
    # 1 and 2 have version 0, so have 3 and 4: the slot of 1 is free for 4 as soon as version 1 is
    # published, but the explorer asks after 4 again; 4 is consumed in train step 4
    assert apart(explorer=2, slots=3).max_off_policy_steps(batch=4, most=4) == 3


def test_rollouts_that_leave_nothing_make_nothing_old() -> None:
    for policy in (fixed(2, 1), explorer_driven(2), trainer_driven(1)):
        assert policy.max_off_policy_steps(batch=4, most=0) == 0
