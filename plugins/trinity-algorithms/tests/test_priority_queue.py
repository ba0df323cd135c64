"""Batches by priority."""

from __future__ import annotations

import threading

import pytest
from trinity.common.experience import Experience
from trinity.errors import BufferClosedError
from trinity_algorithms.replay.priority import DecayLimitRandomization, LinearDecay
from trinity_algorithms.replay.priority_queue import PriorityQueue


def a_batch(version, *, uses=0):
    return [Experience(tokens=[1, 2], info={"model_version": version, "use_count": uses})]


def versions(queue):
    taken = []
    while len(queue):
        taken.append(queue.get(timeout_s=0)[0].info["model_version"])
    return taken


def a_queue(*batches, capacity=3, **options):
    queue = PriorityQueue(capacity, LinearDecay(), **options)
    for batch in batches:
        queue.put(batch)
    return queue


def test_a_full_queue_passes_over_what_is_worth_less_than_all():
    assert versions(a_queue(*map(a_batch, [4, 5, 6, 3]))) == [6, 5, 4]


def test_a_full_queue_gives_up_the_oldest_of_the_lowest():
    first, second = a_batch(4), a_batch(4)
    queue = a_queue(first, second, a_batch(6))
    queue.put(a_batch(4))  # equal to the lowest: it takes the place of the first

    queue.get(timeout_s=0)
    assert queue.get(timeout_s=0)[0] is second[0]


def test_of_equal_batches_the_oldest_comes_first():
    first, second = a_batch(4), a_batch(4)

    assert a_queue(first, second).get(timeout_s=0)[0] is first[0]


def test_a_given_batch_rests_and_comes_back_worth_less():
    now = [0.0]
    queue = a_queue(a_batch(4), reuse_cooldown_s=10.0, clock=lambda: now[0])

    assert queue.get(timeout_s=0)[0].info["use_count"] == 1
    assert len(queue) == 0
    now[0] = 10.0
    queue.put(a_batch(3))  # the other is worth 4 - 2 by now
    assert versions(queue) == [3, 4]


def test_a_batch_that_was_used_often_enough_is_given_up():
    queue = PriorityQueue(3, DecayLimitRandomization(use_count_limit=2))
    queue.put(a_batch(9, uses=2))

    assert len(queue) == 0


def test_a_reader_waits_for_a_writer():
    queue = a_queue()
    threading.Timer(0.05, lambda: queue.put(a_batch(7))).start()

    assert queue.get(timeout_s=5.0)[0].info["model_version"] == 7


def test_a_closed_queue_gives_what_it_holds_and_takes_no_more():
    queue = a_queue(a_batch(4))

    assert queue.close() is False
    with pytest.raises(BufferClosedError):
        queue.put(a_batch(5))
    queue.get(timeout_s=0)
    with pytest.raises(StopIteration):
        queue.get(timeout_s=0)
    assert queue.close() is True


def test_nothing_in_time_is_an_error():
    with pytest.raises(TimeoutError, match="was empty for 0 s"):
        a_queue().get(timeout_s=0)


def test_noise_is_repeated_with_the_seed():
    draws = [
        [DecayLimitRandomization(sigma=1.0, seed=3)(a_batch(0))[0] for _ in range(2)] for _ in "ab"
    ]

    assert draws[0] == draws[1]
    assert draws[0][0] != 0.0


def test_rows_that_no_weights_sampled_count_as_version_0():
    queue = a_queue(a_batch(None), a_batch(1))

    assert versions(queue) == [1, None]
