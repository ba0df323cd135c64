"""A scheduler for thousands of rollouts at the same time."""

from __future__ import annotations

import sys
import time

import pytest
from trinity.common.config import Config
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.explorer.requests import RequestBatch, RequestQueues, RolloutLimits, requests_of
from trinity.explorer.scheduler_builder import build_scheduler
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


class Waits(Workflow):
    def run(self):
        time.sleep(0.01)
        return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0)]


@pytest.fixture
def interval():
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def scheduler_of(num_slots):
    config = Config(mode="both")
    config.explorer.runner_per_model = num_slots
    config.explorer.max_timeout, config.explorer.max_retry_times = 20.0, 0
    engine = ScriptedEngine("46", repeat=True)
    return build_scheduler(config, engines=[engine], model=model_over(engine))


@pytest.mark.parametrize(
    ("num_slots", "expected"), [(8, 0.005), (1_000, 0.1), (5_000, 0.5), (20_000, 1.0)]
)
def test_threads_that_wait_for_python_s_lock_ask_less_often_the_more_there_are(
    interval, num_slots, expected
) -> None:
    sys.setswitchinterval(0.005)

    scheduler_of(num_slots).close()

    assert sys.getswitchinterval() == pytest.approx(expected)


def test_three_hundred_rollouts_that_begin_one_by_one_all_end(interval) -> None:
    scheduler, found = scheduler_of(100), []
    for number in range(300):
        task = a_task(f"{number}", workflow=Waits, repeat_times=1)
        requests = requests_of(task, batch="1", number=number, max_repeat_times=None)
        scheduler.begin(number, requests)
    while len(found) < 300:
        found += scheduler.ended(20.0)
    scheduler.close()

    assert sorted(name for name, _ in found) == list(range(300))
    assert all(result.failure is None for _, results in found for result in results)


def test_a_piece_runs_from_the_queue_to_its_end_and_is_counted_once() -> None:
    limits = RolloutLimits(num_slots=2, timeout_s=1.0, max_attempts=1)
    queues = RequestQueues(2, limits)
    for number in range(3):  # task 0 and 2 are the first engine's
        task = a_task(f"{number}", workflow=Waits, repeat_times=2)
        requests = requests_of(task, batch="1", number=number, max_repeat_times=None)
        queues.add(RequestBatch(number, len(requests)), requests)
    assert [queues.num_running(n) for n in (0, 1)] == [0, 0]

    begun = [queues.queues[0].popleft() for _ in range(3)]
    assert [queues.num_running(n) for n in (0, 1)] == [3, 0]

    queues.ended(begun[0])
    queues.ended(begun[0])  # told twice: counted once
    for piece in queues.withdraw(1):
        queues.ended(piece)
    assert [queues.num_running(n) for n in (0, 1)] == [2, 0]

    queues.clear()
    assert [queues.num_running(n) for n in (0, 1)] == [0, 0]
