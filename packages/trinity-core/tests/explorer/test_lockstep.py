"""The engine knows of a run before it asks, so what stands in a batch follows from the orders."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, Future

import pytest
from trinity.common.config import Config
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.explorer.requests import requests_of
from trinity.explorer.scheduler_builder import build_scheduler
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


class GatedEngine(ScriptedEngine):
    """Answers once every run that began has asked or ended, as the lockstep gate does."""

    def __init__(self):
        super().__init__("46", repeat=True)
        self.batches = []
        self._gate = threading.Condition()
        self._open = 0
        self._asked = []

    def run_began(self, key):
        with self._gate:
            self._open += 1

    def run_ended(self, key):
        with self._gate:
            self._open -= 1
            self._answer_if_all_asked()

    def submit(self, request):
        future: Future = Future()
        with self._gate:
            self._asked.append((request, future))
            self._answer_if_all_asked()
        return future

    def _answer_if_all_asked(self):
        if self._asked and len(self._asked) >= self._open:
            asked, self._asked = sorted(self._asked, key=lambda pair: pair[0].key), []
            self.batches.append([(r.key.task, r.key.run) for r, _ in asked])
            for request, future in asked:
                future.set_result(self._complete(request))


class Turns(Workflow):
    """Asks as often as the row says; takes its time in between."""

    def run(self):
        for _ in range(self.task.raw_task["turns"]):
            time.sleep(0.002 * (self.run_id_base % 3))
            (response,) = self.model.chat([{"role": "user", "content": "?"}])
        return [Experience(tokens=response.tokens, prompt_length=1, reward=1.0)]


@pytest.mark.parametrize("attempt", range(3))
def test_waves_of_runs_are_batched_in_order(world, attempt):
    engine = GatedEngine()
    tasks = [a_task(workflow=Turns, raw_task={"turns": 1}, repeat_times=4) for _ in range(5)]

    world(*tasks, engine=engine, runner_per_model=8).step()

    ids = [(task, run) for task in range(5) for run in range(4)]
    assert engine.batches == [ids[:8], ids[8:16], ids[16:]]


def test_calls_that_begin_together_are_batched_as_a_step_is():
    class HearsLate(GatedEngine):
        def run_began(self, key):
            time.sleep(0.01)  # longer than a run takes to ask
            super().run_began(key)

    engine, config = HearsLate(), Config()
    config.explorer.runner_per_model = 8
    scheduler = build_scheduler(config, engines=[engine], model=model_over(engine))
    task = a_task(workflow=Turns, raw_task={"turns": 1}, repeat_times=4)
    calls = {n: requests_of(task, batch="1", number=n, max_repeat_times=None) for n in range(5)}

    scheduler.begin_all(list(calls.items()))
    ended = scheduler.ended(60.0, for_all=True)
    scheduler.close()

    ids = [(task, run) for task in range(5) for run in range(4)]
    assert engine.batches == [ids[:8], ids[8:16], ids[16:]]
    assert {n: [report.request for report in reports] for n, reports in ended} == calls


def test_a_place_that_is_free_early_is_taken_by_the_next_run(world):
    engine = GatedEngine()
    turns = [1, 3, 2, 1]
    tasks = [a_task(workflow=Turns, raw_task={"turns": n}) for n in turns]

    world(*tasks, engine=engine, runner_per_model=2).step()

    # 0 ends after one turn, 2 takes its place for two, then 3
    batches = [[task for task, _ in batch] for batch in engine.batches]
    assert batches == [[0, 1], [1, 2], [1, 2], [3]]


def test_a_run_that_is_tried_again_stays_open(world):
    engine = GatedEngine()
    failed = []

    class FailsOnce(Turns):
        def run(self):
            if self.run_id_base == 0 and not failed:
                failed.append(1)
                raise ValueError("once")
            return super().run()

    task = a_task(workflow=FailsOnce, raw_task={"turns": 1}, repeat_times=3)
    world(task, engine=engine, runner_per_model=3, max_retry_times=1).step()

    assert engine.batches == [[(0, 0), (0, 1), (0, 2)]]
    assert engine._open == 0


def test_each_engine_has_slots_of_its_own_and_is_named_by_its_samples() -> None:
    engines = [GatedEngine(), GatedEngine()]
    config = Config()
    config.explorer.runner_per_model = 2
    scheduler = build_scheduler(config, engines=engines, model=model_over(engines[0]))
    tasks = [a_task(workflow=Turns, raw_task={"turns": 1}, repeat_times=2) for _ in range(4)]
    requests = [
        request
        for number, task in enumerate(tasks)
        for request in requests_of(task, batch="1", number=number, max_repeat_times=None)
    ]

    results = scheduler.run(requests)
    scheduler.close()

    assert [result.request for result in results] == requests
    assert engines[0].batches == [[(0, 0), (0, 1)], [(2, 0), (2, 1)]]
    assert engines[1].batches == [[(1, 0), (1, 1)], [(3, 0), (3, 1)]]
    said = [exp.info["engine"] for result in results for exp in result.experiences]
    assert said == ["engine-0"] * 2 + ["engine-1"] * 2 + ["engine-0"] * 2 + ["engine-1"] * 2


def test_a_scheduler_that_is_stopped_leaves_its_runs_behind() -> None:
    engine = GatedEngine()
    asked = threading.Event()
    engine.submit = lambda request: asked.set() or Future()
    config = Config()
    scheduler = build_scheduler(config, engines=[engine], model=model_over(engine))
    (request,) = requests_of(
        a_task(workflow=Turns, raw_task={"turns": 1}), batch="1", number=0, max_repeat_times=None
    )
    threading.Thread(target=lambda: asked.wait(60) and scheduler.stop()).start()

    with pytest.raises(CancelledError):
        scheduler.run([request])
    assert engine._open == 0
    assert scheduler.num_hung == 1
    scheduler.close()
