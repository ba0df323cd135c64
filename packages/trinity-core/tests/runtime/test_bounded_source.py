"""What a strategy may read: only what is due, and never by waiting."""

from __future__ import annotations

import pytest
from trinity.buffer.priority import LinearDecay
from trinity.buffer.queue import QueueStorage
from trinity.buffer.replay import ReplayStorage
from trinity.common.config import ExperienceBufferConfig
from trinity.extend import KINDS
from trinity.runtime.bounded_source import BoundedSource
from trinity.runtime.whole_storage import WholeStorage
from trinity_testing.builders import an_experience


def rows(*runs, version=0):
    return [an_experience(run=run, info={"model_version": version}) for run in runs]


def runs(experiences):
    return [experience.eid.run for experience in experiences]


@pytest.fixture
def queue():
    return whole(QueueStorage(ExperienceBufferConfig()))


def a_replay_buffer(cooldown):
    replay = {"enable": True, "reuse_cooldown_time": cooldown}
    config = ExperienceBufferConfig(replay_buffer=replay)
    return whole(ReplayStorage(config, priority_fn=LinearDecay()))


def whole(storage):
    can = KINDS["storage"].abilities_in(type(storage))
    return WholeStorage(storage, abilities=can, name="buffer")


def test_what_is_not_due_stays(queue) -> None:
    source = BoundedSource(queue, batch_size=4)
    queue.write(rows(0, 1, 2, 3, 4))
    source.num_due = 3

    assert runs(source.read(4, timeout_s=0)) == [0, 1, 2]
    with pytest.raises(StopIteration):
        source.read(4, timeout_s=0)
    assert queue.available() == 2


def test_what_is_too_old_is_not_waited_for(queue) -> None:
    source = BoundedSource(queue)
    queue.write(rows(0, 1, version=1))
    queue.write(rows(2, version=2))
    source.num_due = 3

    assert runs(source.read(3, timeout_s=0, min_model_version=2)) == [2]
    assert source.available() == 0
    queue.write(rows(3, version=2))
    source.num_due = 1
    with pytest.raises(StopIteration):
        source.read(1, timeout_s=0, min_model_version=3)


def test_a_short_batch_is_filled_up_with_what_was_used(queue) -> None:
    buffer = a_replay_buffer(0.0)
    source = BoundedSource(buffer, batch_size=4)
    buffer.write(rows(0, 1, 2, 3, 4))
    source.num_due = 5

    reads = [runs(source.read(4, timeout_s=0)) for _ in range(2)]

    assert reads == [[0, 1, 2, 3], [4, 0, 1, 2]]
    assert (source.num_due, source.available()) == (0, 0)


def test_without_reuse_a_short_batch_stays_short() -> None:
    buffer = a_replay_buffer(None)
    source = BoundedSource(buffer, batch_size=4)
    buffer.write(rows(0, 1, 2, 3, 4))
    source.num_due = 5

    assert [len(source.read(4, timeout_s=0)) for _ in range(2)] == [4, 1]
