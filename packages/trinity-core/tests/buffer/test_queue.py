"""The queue between exploring and training: nothing is lost, nobody waits in a circle."""

from __future__ import annotations

import threading
import time

import pytest
from trinity.buffer.queue import QueueStorage
from trinity.common.config import ExperienceBufferConfig
from trinity.errors import BufferClosedError
from trinity_testing.builders import an_experience


def a_queue(**fields) -> QueueStorage:
    return QueueStorage(ExperienceBufferConfig(name="buffer", **fields), path=None)


def batch(*numbers, version=0):
    return [an_experience(run=number, info={"model_version": version}) for number in numbers]


def runs(experiences):
    return [experience.eid.run for experience in experiences]


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_first_in_first_out_over_the_borders_of_batches():
    queue = a_queue()
    queue.write(batch(0, 1, 2))
    queue.write(batch(3, 4))

    assert runs(queue.read(2, timeout_s=1)) == [0, 1]
    assert runs(queue.read(3, timeout_s=1)) == [2, 3, 4]
    assert queue.available() == 0


def test_a_read_that_times_out_leaves_everything_in_place(golden):
    queue = a_queue()
    queue.write(batch(0, 1, 2))

    with pytest.raises(TimeoutError) as caught:
        queue.read(5, timeout_s=0.05)

    golden(str(caught.value), "queue_read_timeout")
    assert runs(queue.read(3, timeout_s=1)) == [0, 1, 2]


def test_a_read_waits_for_a_later_write():
    queue = a_queue()
    writer = in_thread(lambda: (time.sleep(0.1), queue.write(batch(0, 1))))

    assert runs(queue.read(2, timeout_s=10)) == [0, 1]
    writer.join(5)


def test_a_full_queue_makes_the_writer_wait_for_a_read():
    queue = a_queue(capacity=4)
    for number in range(4):
        queue.write(batch(number))
    writer = in_thread(lambda: queue.write(batch(4)))
    time.sleep(0.1)

    assert queue.available() == 4
    queue.read(1, timeout_s=1)
    writer.join(5)
    assert not writer.is_alive()
    assert runs(queue.read(4, timeout_s=1)) == [1, 2, 3, 4]


def test_a_reader_that_wants_more_than_the_capacity_is_not_waited_for():
    queue = a_queue(capacity=1)
    writer = in_thread(lambda: [queue.write(batch(number)) for number in range(3)])

    assert runs(queue.read(3, timeout_s=10)) == [0, 1, 2]
    writer.join(5)


def test_a_writer_that_waits_too_long_says_whom_for_and_stores_nothing():
    queue = a_queue(capacity=1, max_read_timeout=0.05)
    queue.write(batch(0))

    with pytest.raises(TimeoutError, match=r"was full.*Check that the trainer reads"):
        queue.write(batch(1))

    assert runs(queue.read(1, timeout_s=1)) == [0]


def test_after_close_the_rest_is_handed_out_and_then_the_end():
    queue = a_queue()
    queue.write(batch(0, 1, 2))
    queue.close()
    queue.close()

    assert runs(queue.read(2, timeout_s=1)) == [0, 1]
    assert runs(queue.read(2, timeout_s=1)) == [2]
    with pytest.raises(StopIteration):
        queue.read(1, timeout_s=1)
    with pytest.raises(BufferClosedError, match="buffer is closed"):
        queue.write(batch(3))


def test_close_wakes_a_writer_and_a_reader_that_wait():
    full, empty = a_queue(capacity=1), a_queue()
    full.write(batch(0))
    ends = []

    def write():
        with pytest.raises(BufferClosedError):
            full.write(batch(1))
        ends.append("writer")

    def read():
        with pytest.raises(StopIteration):
            empty.read(1, timeout_s=60)
        ends.append("reader")

    threads = [in_thread(write), in_thread(read)]
    time.sleep(0.05)
    full.close()
    empty.close()
    for thread in threads:
        thread.join(5)

    assert sorted(ends) == ["reader", "writer"]
    assert runs(full.read(1, timeout_s=1)) == [0]


def test_experiences_of_older_models_are_dropped():
    queue = a_queue()
    queue.write(batch(0, 1, version=1) + batch(2, version=3))
    queue.write(batch(3, version=4))

    assert runs(queue.read(2, timeout_s=1, min_model_version=3)) == [2, 3]


def test_waiting_shows_what_a_checkpoint_must_keep_without_taking_it():
    queue = a_queue()
    queue.write(batch(0, 1))
    queue.read(1, timeout_s=1)

    assert runs(queue.waiting()) == [1]
    assert queue.available() == 1


def test_uses_are_not_counted_as_each_experience_has_one():
    queue = a_queue()
    queue.write(batch(0))

    assert "use_count" not in queue.read(1, timeout_s=1)[0].info


def test_many_writers_and_readers_lose_nothing_and_repeat_nothing():
    queue = a_queue(capacity=3)
    taken = []

    def read():
        for _ in range(10):
            taken.extend(runs(queue.read(4, timeout_s=30)))

    writers = [
        in_thread(
            lambda first=first: [
                queue.write(batch(first + i, first + i + 1)) for i in range(0, 20, 2)
            ]
        )
        for first in (0, 20, 40, 60)
    ]
    readers = [in_thread(read) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.join(30)

    assert sorted(taken) == list(range(80))
