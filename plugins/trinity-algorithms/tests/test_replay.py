"""The replay buffer: by priority, again after a while, and the same after a checkpoint."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import Experience
from trinity.errors import BufferClosedError
from trinity_algorithms.replay.priority import DecayLimitRandomization, LinearDecay
from trinity_algorithms.replay.storage import ReplayStorage
from trinity_testing.builders import an_experience


def a_buffer(*, priority_fn=None, cooldown=None, **fields):
    replay = {"enable": True, "reuse_cooldown_time": cooldown}
    config = ExperienceBufferConfig(name="buffer", replay_buffer=replay, **fields)
    return ReplayStorage(config, priority_fn=priority_fn or LinearDecay())


def rows(*runs, version=0):
    return [an_experience(run=run, info={"model_version": version}) for run in runs]


def runs(experiences):
    return [experience.eid.run for experience in experiences]


def read(buffer, count, **options):
    return runs(buffer.read(count, timeout_s=0, **options))


def test_newer_versions_come_first_and_what_is_left_of_a_batch_keeps_its_place():
    buffer = a_buffer()
    buffer.write(rows(0, 1, 2, version=1))
    buffer.write(rows(3, 4, version=3))
    buffer.write(rows(5, 6, version=2))

    assert read(buffer, 3) == [3, 4, 5]
    assert read(buffer, 2) == [6, 0]
    assert read(buffer, 2) == [1, 2]
    assert buffer.available() == 0


def test_a_read_that_finds_too_few_leaves_everything_in_place():
    buffer = a_buffer()
    buffer.write(rows(0, 1))

    with pytest.raises(TimeoutError, match="buffer: it has 2 of the 3 requested experiences"):
        buffer.read(3, timeout_s=0)

    assert read(buffer, 2) == [0, 1]


def test_a_read_waits_for_a_write():
    buffer = a_buffer()
    threading.Timer(0.05, lambda: buffer.write(rows(0, 1))).start()

    assert runs(buffer.read(2, timeout_s=5)) == [0, 1]


def test_what_was_read_can_be_read_again_but_not_in_the_same_read():
    buffer = a_buffer(cooldown=0)
    buffer.write(rows(0, 1))

    with pytest.raises(TimeoutError):
        buffer.read(3, timeout_s=0)
    assert (read(buffer, 2), read(buffer, 2)) == ([0, 1], [0, 1])
    assert [row.info["use_count"] for row in buffer.waiting()] == [2, 2]


def test_what_rests_cannot_be_read_and_is_not_lost():
    buffer = a_buffer(cooldown=60)
    buffer.write(rows(0, 1))
    read(buffer, 1)

    assert buffer.available() == 1
    assert runs(buffer.waiting()) == [1, 0]


def test_each_experience_is_counted_by_what_became_of_it():
    buffer = a_buffer(
        priority_fn=DecayLimitRandomization(use_count_limit=2), cooldown=0, capacity=2
    )
    buffer.write(rows(0, 1, version=1))
    read(buffer, 2)  # the first use
    buffer.write(rows(2, version=4))
    buffer.write(rows(3, version=5))  # gives up the lowest: 0 and 1, which were used
    buffer.write(rows(4, version=3))  # is worth less than all that is held
    read(buffer, 2)
    read(buffer, 2)  # the second use of both, so that they are not kept
    buffer.available()

    assert buffer.counts() == {
        "written": 5,
        "uses": 6,
        "reused": 2,
        "evicted": 3,
        "given_up": 2,
        "too_old": 0,
        "untrained": 1,  # row 4
        "held": 0,
    }


def test_what_older_weights_made_is_dropped_and_counted():
    buffer = a_buffer()
    buffer.write(rows(0, version=1))
    buffer.write(rows(1, version=2))

    assert read(buffer, 1, min_model_version=2) == [1]
    assert (buffer.counts()["too_old"], buffer.available()) == (1, 0)


def test_what_could_not_be_trained_is_put_back_as_if_it_had_not_been_read():
    buffer = a_buffer(cooldown=0)
    buffer.write(rows(0, 1, 2))
    before = buffer.counts()
    buffer.put_back(buffer.read(2, timeout_s=0))

    assert buffer.counts() == before
    assert read(buffer, 3) == [0, 1, 2]


def test_a_closed_buffer_gives_what_can_be_had_and_takes_no_more():
    buffer = a_buffer()
    buffer.write(rows(0, 1))
    buffer.close()

    assert read(buffer, 5) == [0, 1]
    with pytest.raises(StopIteration):
        buffer.read(1, timeout_s=0)
    with pytest.raises(BufferClosedError):
        buffer.write(rows(2))


def gone_on(buffer, **options):
    """Return a buffer that goes on from a checkpoint of this one, as a run does it."""
    state = json.loads(json.dumps(buffer.state_dict()))
    stored = [Experience.from_dict(row.to_dict()) for row in buffer.waiting()]
    other = a_buffer(**options)
    other.load_state_dict(state)
    if stored:
        other.write(stored)
    return other


def test_after_a_checkpoint_a_rest_goes_on_where_it_was():
    buffer = a_buffer(cooldown=60)
    buffer.write(rows(0, 1))
    read(buffer, 1)

    other = gone_on(buffer, cooldown=60)

    assert other.available() == 1
    assert other.counts() == buffer.counts()
    (_, resting) = other.state_dict()["resting"][0]
    assert resting == ["0/0/0/0"]
    assert 0 < other.state_dict()["resting"][0][0] <= 60


def test_the_experiences_of_a_checkpoint_may_be_of_a_moment_before_its_state():
    buffer = a_buffer(priority_fn=DecayLimitRandomization(use_count_limit=1), cooldown=0)
    buffer.write(rows(0, 1, 2))
    read(buffer, 2)
    stored = buffer.waiting()
    buffer.available()  # gives up what was used
    other = a_buffer(priority_fn=DecayLimitRandomization(use_count_limit=1), cooldown=0)
    other.load_state_dict(buffer.state_dict())
    other.write(stored)

    assert runs(other.waiting()) == [2]


def test_a_priority_that_is_a_tensor_can_be_written_to_a_checkpoint():
    class OfReward(LinearDecay):
        def __call__(self, experiences):
            return torch.tensor(len(experiences) / 2), torch.tensor(1) > 0

    buffer = a_buffer(priority_fn=OfReward())
    buffer.write(rows(0, 1, 2))
    buffer.put_back(buffer.read(2, timeout_s=0))

    assert json.loads(json.dumps(buffer.state_dict()))["held"][1][0] == 1.0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 5)),
        st.tuples(st.just("read"), st.integers(1, 7)),
        st.tuples(st.just("checkpoint"), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS,
    decay=st.sampled_from([0.1, 2.0]),
    limit=st.sampled_from([0, 2]),
    cooldown=st.sampled_from([None, 0.0]),
    capacity=st.sampled_from([2, 100]),
)
def test_a_run_that_was_stopped_reads_what_an_unbroken_one_does_and_each_row_is_accounted_for(
    steps, decay, limit, cooldown, capacity
):
    def made():
        return DecayLimitRandomization(decay=decay, use_count_limit=limit, sigma=0.5)

    options = {"cooldown": cooldown, "capacity": capacity}
    whole, parts = (a_buffer(priority_fn=made(), **options) for _ in "ab")
    written, version = 0, 0
    for what, size in steps:
        if what == "write":
            for buffer in (whole, parts):
                buffer.write(rows(*range(written, written + size), version=version))
            written += size
        elif what == "read":
            assert parts.available() == whole.available()  # what rested is judged now, in both
            if whole.available() >= size:
                version += 1
                assert read(whole, size) == read(parts, size)
        elif what == "checkpoint":
            parts = gone_on(parts, priority_fn=made(), **options)

    counts = whole.counts()
    assert parts.counts() == counts
    lost = counts["evicted"] + counts["given_up"] + counts["too_old"]
    gone = counts["uses"] - counts["reused"] if cooldown is None else 0
    assert counts["written"] == written == counts["held"] + lost + gone
