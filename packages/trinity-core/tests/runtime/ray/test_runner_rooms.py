"""A rollout worker serves one dispatcher at a time, and has its judges where its engine is."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from trinity.common.config.inference_model import InferenceModelConfig
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.errors import WorkerLostError
from trinity.explorer.packing import PackedRequests
from trinity.explorer.requests import requests_of, workflow_info
from trinity.runtime.ray import rollout_worker
from trinity.runtime.ray.engine_worker import EngineWorker
from trinity_testing.builders import a_task


class Asking(Workflow):
    """Asks once."""

    def run(self):
        (reply,) = self.model.chat([{"role": "user", "content": "?"}])
        return [Experience(tokens=reply.tokens, prompt_length=reply.prompt_length, reward=1.0)]


def requests_for(number):
    task = a_task(workflow=Asking, repeat_times=3)
    return requests_of(task, batch="1", number=number, max_repeat_times=None)


def packed(number):
    return [(number, PackedRequests.of(requests_for(number)))]


def uids(ended):
    """Return what each request gave, by its number."""
    found = {}
    for number, results in ended[0]:
        assert number not in found
        reports = results.unpacked(requests_for(number))
        found[number] = [str(e.eid) for report in reports for e in report.experiences]
    return found


def test_another_dispatcher_leaves_behind_what_the_last_one_left_running(
    workers, keyed_engine
) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=3)
    workers.engine_worker(stuck)
    runner = workers.rollout_worker()
    runner.call("open", "old")
    runner.call("begin", "old", packed(0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(runner.call, "ended", "old", 1.0)
        assert stuck.arrived.wait(60)
        stuck.is_stuck = False
        runner.call("open", "new")
        runner.call("begin", "old", packed(1))
        runner.call("cut", "old", [2])
        runner.call("begin", "new", packed(2))  # whose end the call of the old one may take
        found = {}
        while not found:
            found = uids(runner.call("ended", "new", 0.1))
        with pytest.raises(WorkerLostError, match="was lost: it was started anew"):
            waiting.result(10)

    assert found == {2: ["1/2/0/0", "1/2/1/0", "1/2/2/0"]}
    assert uids(runner.call("ended", "new", 0.1)) == {}
    assert all(future.cancelled() for future in stuck.futures)


def test_who_asks_for_all_is_told_once_they_ended_or_time_is_over(workers, keyed_engine) -> None:
    class StuckAfterThree(keyed_engine):
        def submit(self, request):
            self.is_stuck = len(self.requests) >= 3
            return super().submit(request)

    workers.config.explorer.runner_per_model = 3
    engine = StuckAfterThree(num_wanted=4)
    workers.engine_worker(engine)
    runner = workers.rollout_worker()
    runner.call("open", "own")
    runner.call("begin", "own", [*packed(0), *packed(1)])
    assert engine.arrived.wait(60)

    assert uids(runner.call("ended", "own", 0.2, for_all=True)).keys() == {0}
    runner.call("cut", "own", [1])
    (ended,), lost_s = runner.call("ended", "own", 60.0, for_all=True)
    assert ended[0] == 1
    assert [end.failure.is_cut for end in ended[1].ends] == [True] * 3
    assert lost_s == 0.0


def test_a_task_travels_once_for_its_group() -> None:
    requests = [*requests_for(0), *requests_for(1)]
    together = PackedRequests.of(requests)

    assert len(together.groups) == 2
    assert together.unpacked() == requests
    assert together.unpacked()[0].task is not together.unpacked()[1].task


def test_a_worker_looks_a_workflow_up_once(workers, keyed_engine, monkeypatch) -> None:
    asked = []

    def find(workflow):
        asked.append(workflow)
        return workflow_info(workflow)

    monkeypatch.setattr(rollout_worker, "workflow_info", find)
    workers.engine_worker(keyed_engine(num_wanted=3))
    runner = workers.rollout_worker()
    runner.call("open", "own")
    for number in (0, 1):
        runner.call("begin", "own", packed(number))
        assert len(uids(runner.call("ended", "own", 60.0, for_all=True))[number]) == 3

    assert len(asked) == 1


def a_judge(**settings):
    return InferenceModelConfig(name="judge", model_path="a-judge", **settings)


@pytest.mark.parametrize(
    ("judge", "seen"),
    [
        (a_judge(), ["2,3"]),
        (a_judge(external_model_config={"enable": True}), ["0,1,2,3"]),
    ],
    ids=["an engine of its own", "an external one"],
)
def test_a_judge_is_on_the_gpus_of_the_engine_whose_runs_ask_it(
    workers, monkeypatch, judge, seen
) -> None:
    """Not on the machine's first one, with the judges of all other runners."""
    given, found = "2,3", []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(EngineWorker, "gpus", lambda worker: given)
    monkeypatch.setattr(
        rollout_worker,
        "make_auxiliary_models",
        lambda *_, **__: found.append(os.environ["CUDA_VISIBLE_DEVICES"]) or [],
    )
    workers.config.explorer.auxiliary_models = [judge]
    workers.engine_worker().num_refused = 1  # it comes back, and is asked again

    workers.rollout_worker()

    assert found == seen


@pytest.mark.parametrize("given", ["4,5", None])
def test_an_engine_says_which_gpus_ray_gave_it(workers, monkeypatch, given) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)

    assert workers.engine_worker().call("gpus") == given
