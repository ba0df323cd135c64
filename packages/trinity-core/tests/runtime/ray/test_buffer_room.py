"""The buffer's room, made as any object: packets in, batches out, each once."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity.common.wire import encode
from trinity.extend import get_manager
from trinity.runtime.ray.buffer_room import BufferRoom
from trinity.runtime.ray.room import RoomContext
from trinity.runtime.record.rundir import RunDir


@pytest.fixture
def room(tmp_path) -> BufferRoom:
    return a_room(tmp_path)


def a_room(tmp_path, **replay) -> BufferRoom:
    config = Config()
    config.buffer.train_batch_size = 8
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(
        max_read_timeout=1, replay_buffer=replay
    )
    config.algorithm.sample_strategy, config.algorithm.sample_strategy_args = "default", {}
    context = RoomContext(
        name="buffer", config=config, rundir=RunDir(tmp_path), manager=get_manager()
    )
    return BufferRoom(context, is_bounded=True)


def a_packet(*runs: int, step: int = 1):
    return encode([Experience(tokens=[1, 2], eid=EID(step, 0, run), reward=1.0) for run in runs])


def eids(room: BufferRoom) -> list[str]:
    return list(room.waiting().eids)


def test_a_packet_that_comes_again_is_stored_once(room) -> None:
    room.write("1", a_packet(0, 1))
    room.write("1", a_packet(0, 1))
    room.write("2", a_packet(0, step=2))

    assert eids(room) == ["1/0/0/0", "1/0/1/0", "2/0/0/0"]


def test_a_sample_says_what_it_holds_and_what_is_left(room) -> None:
    room.write("1", a_packet(*range(12)))

    first = room.sample(1, num_due=10)
    second = room.sample(2, num_due=None)

    assert [len(first.payload), len(second.payload)] == [8, 2]  # train_batch_size is 8
    assert first.value.eids == first.payload.eids == tuple(f"1/0/{run}/0" for run in range(8))
    assert (first.value.num_due, first.value.available) == (2, 2)
    assert (second.value.num_due, second.value.available) == (0, 0)
    assert eids(room) == ["1/0/10/0", "1/0/11/0"]
    with pytest.raises(StopIteration):
        room.sample(3, num_due=None)


def test_what_is_put_back_is_the_next_sample(room) -> None:
    room.write("1", a_packet(*range(9)))
    batch = room.sample(1, num_due=9).payload

    room.put_back(batch)

    assert room.available(num_due=9) == 9
    assert room.sample(1, num_due=9).value.eids == batch.eids


def test_a_replay_buffer_fills_the_last_batch_up_and_says_what_it_counted(tmp_path) -> None:
    room = a_room(tmp_path, enable=True, reuse_cooldown_time=0)
    room.write("1", a_packet(*range(12)))

    samples = [room.sample(1, num_due=12).value, room.sample(2, num_due=None).value]

    assert [len(sample.eids) for sample in samples] == [8, 8]
    assert samples[1].eids[:4] == tuple(f"1/0/{run}/0" for run in range(8, 12))
    assert (samples[1].num_due, samples[1].available) == (0, 0)
    assert samples[1].counts["reused"] == 4
    with pytest.raises(StopIteration):
        room.sample(3, num_due=None)


def test_a_room_that_is_built_anew_goes_on_with_the_uses_of_a_checkpoint(tmp_path) -> None:
    rooms = [a_room(tmp_path, enable=True, reuse_cooldown_time=0) for _ in "ab"]
    rooms[0].write("1", a_packet(*range(12)))
    rooms[0].sample(1, num_due=12)

    rooms[1].load_storage(rooms[0].storage_state())
    rooms[1].write("of the checkpoint", rooms[0].waiting())

    assert rooms[1].counts() == rooms[0].counts()
    nexts = [room.sample(2, num_due=4).value for room in rooms]
    assert nexts[0].eids == nexts[1].eids
