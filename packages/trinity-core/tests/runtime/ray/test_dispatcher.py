"""The orders of a step end as they do in one process, each once, whichever workers are lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from trinity.common.experience import Experience
from trinity.common.outcome import Outcome
from trinity.common.workflows import Workflow
from trinity.errors import (
    EnvError,
    ModelError,
    RayLostError,
    RunFailedError,
    TrinityError,
    UnknownComponentError,
    WorkerLostError,
)
from trinity.explorer.requests import requests_of
from trinity.explorer.scheduler_builder import build_scheduler
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import model_over

LIMIT_S = 40.0


class Asking(Workflow):
    """Asks once; what it is told makes its reward."""

    def run(self):
        (reply,) = self.model.chat([{"role": "user", "content": self.task.raw_task["question"]}])
        return [
            Experience(
                tokens=reply.tokens,
                logprobs=reply.logprobs,
                prompt_length=reply.prompt_length,
                reward=float(reply.response_text),
                info={"said": reply.response_text},
            )
        ]


class Failing(Asking):
    others = threading.Event()  # set once another rollout is under way, where that matters
    others.set()

    def run(self):
        if (self.task.task_id, self.run_id_base) == (0, 1):
            assert self.others.wait(LIMIT_S)
            raise EnvError("the shop is closed")
        return super().run()


def some_requests(count=5, workflow=Asking, step=1):
    """Return three orders for each of so many tasks."""
    tasks = [a_task(f"{n}?", workflow=workflow, repeat_times=3) for n in range(count)]
    return [
        request
        for number, task in enumerate(tasks)
        for request in requests_of(task, batch=str(step), number=number, max_repeat_times=None)
    ]


def ends(results):
    return [
        (
            result.request.key,
            result.failure,
            [(e.eid, e.tokens.tolist(), e.logprobs.tolist(), e.reward) for e in result.experiences],
        )
        for result in results
    ]


@pytest.fixture
def local(keyed_engine):
    """Return a function that runs orders in this process, on engines of their own."""

    def run(config, requests, num_engines=1):
        engines = [keyed_engine() for _ in range(num_engines)]
        scheduler = build_scheduler(config, engines=engines, model=model_over(engines[0]))
        results = scheduler.run(requests)
        scheduler.close()
        return ends(results)

    return run


@pytest.fixture
def two(workers, dispatcher, keyed_engine, request):
    """Return a dispatcher over two engines, the workers of both, and the second engine, stuck."""
    workers.config.explorer.rollout_model.engine_num = 2
    workers.config.explorer.on_failed_run = getattr(request, "param", "drop")
    stuck = keyed_engine(is_stuck=True)
    engines = [
        workers.engine_worker(number=0),
        workers.engine_worker(stuck, keyed_engine(), number=1),
    ]
    runners = [workers.rollout_worker(number) for number in (0, 1)]
    return dispatcher(*runners, move_s=0.3), engines, runners, stuck


def run_and(disturb, dispatcher, requests, *stuck):
    """Return how orders end whose engines are stuck until the run is disturbed."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(dispatcher.run, requests)
        assert all(engine.arrived.wait(LIMIT_S) for engine in stuck)
        disturb()
        return ends(running.result(LIMIT_S))


def lose(worker, *, fault=None, is_final=False):
    """End a process that no other takes the place of, or one that is not built."""
    worker.num_refused = 1
    worker.kill()
    worker.fault = fault or WorkerLostError(worker.name, cause="killed", is_final=is_final)


def test_a_step_is_one_message_each_way(workers, dispatcher, local) -> None:
    workers.config.explorer.runner_per_model = 4
    requests = some_requests()
    engine, runner = workers.engine_worker(), workers.rollout_worker()

    results = dispatcher(runner).run(requests)

    assert ends(results) == local(workers.config, requests)
    assert [result.request for result in results] == requests
    assert runner.calls == ["open", "begin", "ended"]
    assert engine.calls.count("exchange") == 4  # 15 runs in waves of 4
    assert engine.part._engine.num_open_runs in {0, 3}  # that the last ended may be told later


def test_the_engines_share_the_tasks(two, workers, local) -> None:
    remote, _, _, stuck = two
    stuck.is_stuck = False
    requests = some_requests()

    assert ends(remote.run(requests)) == local(workers.config, requests, num_engines=2)
    tasks = [{request.key.task for request in engine.requests} for engine in workers.built]
    assert tasks == [{0, 2, 4}, {1, 3}]


def test_a_failed_run_arrives_as_data(workers, dispatcher, local) -> None:
    requests = some_requests(2, Failing)
    workers.engine_worker()

    results = dispatcher(workers.rollout_worker()).run(requests)

    assert ends(results) == local(workers.config, requests)
    failure = results[1].failure
    assert failure.outcome is Outcome.ENV_ERROR
    assert failure.message == "EnvError: the shop is closed"
    assert failure.where.startswith(__file__)


def test_what_concerns_every_run_arrives_as_itself_and_ends_one_step(
    workers, dispatcher, local
) -> None:
    workers.engine_worker()
    remote = dispatcher(workers.rollout_worker())
    task = a_task(workflow="math_workflow", reward_fn="no_such_reward")
    with pytest.raises(UnknownComponentError, match="no_such_reward"):
        remote.run(requests_of(task, batch="1", number=0, max_repeat_times=None))
    requests = some_requests()

    assert ends(remote.run(requests)) == local(workers.config, requests)


def test_what_cannot_be_read_in_the_worker_ends_the_step(workers, dispatcher) -> None:
    workers.engine_worker()
    runner = workers.rollout_worker()
    call = runner.call

    def unreadable(method, *args, **kwargs):
        if method == "begin":
            raise TrinityError("a call of runner-0 did not reach it: no module named mine")
        return call(method, *args, **kwargs)

    runner.call = unreadable
    with pytest.raises(TrinityError, match="no module named mine"):
        dispatcher(runner).run(some_requests())


@pytest.mark.parametrize("two", ["fail"], indirect=True)
def test_the_first_failed_run_stops_all_if_it_is_to(two, monkeypatch) -> None:
    remote, _, runners, stuck = two
    monkeypatch.setattr(Failing, "others", stuck.arrived)

    with pytest.raises(RunFailedError, match="the shop is closed"):
        remote.run(some_requests(2, Failing))
    assert "cut" in runners[1].calls


def test_a_runner_that_dies_in_mid_run_does_its_runs_again(
    workers, dispatcher, local, keyed_engine, caplog
) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=8)
    engine, runner = workers.engine_worker(stuck), workers.rollout_worker()
    requests = some_requests()

    def kill():
        stuck.is_stuck = False
        runner.kill()

    assert run_and(kill, dispatcher(runner), requests, stuck) == local(workers.config, requests)
    assert {request.key.attempt for request in stuck.requests} == {1}
    assert all(future.cancelled() for future in stuck.futures)
    assert engine.calls.count("open") >= 2
    assert "runner-0 was lost: killed; its 5 rollout requests are queued again" in caplog.text


@pytest.mark.parametrize(
    ("two", "lost", "how"),
    [
        pytest.param("drop", "runner", {}, id="runner is away"),
        pytest.param("fail", "engine", {}, id="engine is away"),
        pytest.param("drop", "engine", {"is_final": True}, id="engine is gone for good"),
        pytest.param(
            *("fail", "runner", {"fault": ModelError("no memory is left")}),
            id="runner is not built again",
        ),
        pytest.param("fail", "runner", {"is_final": True}, id="runner is gone for good"),
        pytest.param(
            *("drop", "engine", {"fault": ModelError("no memory is left")}),
            id="engine is not built again",
        ),
    ],
    indirect=["two"],
)
def test_what_one_that_is_lost_was_to_run_others_run(
    two, workers, local, lost, how, caplog
) -> None:
    remote, engines, runners, stuck = two
    worker = {"runner": runners, "engine": engines}[lost][1]
    first, second = (some_requests(step=step) for step in (1, 2))

    assert run_and(lambda: lose(worker, **how), remote, first, stuck) == local(
        workers.config, first
    )
    assert ends(remote.run(second)) == local(workers.config, second)
    assert runners[1].calls.count("begin") == 1
    said = {
        "runner": "; its 2 rollout requests are queued again",
        "engine": "s: other engines take over 2 of its rollout requests",
    }
    assert said[lost] in caplog.text


def test_where_all_engines_are_lost_each_is_waited_for_as_the_only_one_is(
    workers, dispatcher, keyed_engine, local
) -> None:
    """They are there again, and get their weights, later than a runner's process would be."""
    stuck = [keyed_engine(is_stuck=True) for _ in range(2)]
    engines = [workers.engine_worker(one, keyed_engine(), number=n) for n, one in enumerate(stuck)]
    remote = dispatcher(*map(workers.rollout_worker, (0, 1)), move_s=0.0, return_s=0.5)
    requests = some_requests()

    def lose_both_for_a_while():
        for engine in engines:
            lose(engine)
        time.sleep(1.5)
        for engine in engines:
            engine.fault = None

    assert run_and(lose_both_for_a_while, remote, requests, *stuck) == local(
        workers.config, requests
    )


def test_an_engine_that_is_back_soon_answers_its_runs_itself(
    workers, dispatcher, keyed_engine, local
) -> None:
    stuck = keyed_engine(is_stuck=True)
    engines = [
        workers.engine_worker(number=0),
        workers.engine_worker(stuck, keyed_engine(), number=1),
    ]
    runners = [workers.rollout_worker(number) for number in (0, 1)]
    requests = some_requests()

    def kill():
        engines[1].num_refused = 4  # it is away for a second or two
        engines[1].kill()

    assert run_and(kill, dispatcher(*runners), requests, stuck) == local(workers.config, requests)
    assert [runner.calls.count("begin") for runner in runners] == [1, 1]
    assert "cut" not in runners[1].calls


def test_runs_stay_with_a_lost_engine_as_long_as_the_others_are_busy(
    workers, dispatcher, keyed_engine, local
) -> None:
    stuck = [keyed_engine(is_stuck=True) for _ in range(2)]
    engines = [workers.engine_worker(one, keyed_engine(), number=n) for n, one in enumerate(stuck)]
    runners = [workers.rollout_worker(number) for number in (0, 1)]
    requests = some_requests()

    def lose_one_long_before_the_other_is_free():
        lose(engines[1])
        time.sleep(2.0)
        assert runners[0].calls.count("begin") == 1
        engines[0].kill()

    remote = dispatcher(*runners, move_s=0.3)
    results = run_and(lose_one_long_before_the_other_is_free, remote, requests, *stuck)
    assert results == local(workers.config, requests)
    assert [runner.calls.count("begin") for runner in runners] == [2, 1]


def test_runs_of_tasks_that_had_ended_are_not_made_anew(
    workers, dispatcher, keyed_engine, local
) -> None:
    class DiesAfterThree(keyed_engine):
        def submit(self, request):
            self.is_stuck = len(self.requests) >= 3
            return super().submit(request)

    workers.config.explorer.runner_per_model = 3  # a task after the other
    engine = DiesAfterThree(num_wanted=4)
    workers.engine_worker(number=0)
    dying = workers.engine_worker(engine, keyed_engine(), number=1)
    remote = dispatcher(*map(workers.rollout_worker, (0, 1)), move_s=0.3)
    requests = some_requests()

    assert run_and(lambda: lose(dying), remote, requests, engine) == local(workers.config, requests)
    other = [(request.key.task, request.key.run) for request in workers.built[0].requests]
    assert sorted(other) == [(task, run) for task in (0, 2, 3, 4) for run in range(3)]


def test_a_task_that_ends_every_runner_ends_the_step(two) -> None:
    remote, _, runners, stuck = two
    stuck.is_stuck, deaths = False, []
    for runner in runners:
        call = runner.call

        def dying(method, *args, call=call, runner=runner, **kwargs):
            if method == "begin":
                tasks = {request.key.task for _, one in args[1] for request in one.unpacked()}
                if 1 in tasks:
                    deaths.append(runner.name)
                    runner.kill()
            return call(method, *args, **kwargs)

        runner.call = dying

    with pytest.raises(WorkerLostError, match="task 1 of step 1 has lost 4 workers in a row"):
        remote.run(some_requests())

    assert sorted(set(deaths)) == ["runner-0", "runner-1"]
    assert len(deaths) == 4


def test_a_worker_whose_engine_is_back_gets_requests_again(two, workers, local) -> None:
    remote, engines, runners, stuck = two
    requests, number = some_requests(), 2
    assert run_and(lambda: lose(engines[1]), remote, requests, stuck) == local(
        workers.config, requests
    )
    engines[1].fault, limit = None, time.monotonic() + LIMIT_S
    while runners[1].calls.count("begin") == 1:
        requests = some_requests(step=number)
        assert ends(remote.run(requests)) == local(workers.config, requests)
        assert time.monotonic() < limit
        time.sleep(0.2)
        number += 1


def test_where_all_are_lost_the_first_that_is_back_runs_what_there_is(two, workers, local) -> None:
    remote, _, runners, stuck = two
    runners[0].num_refused, runners[1].num_refused = 4, 10**6
    stuck.is_stuck = False
    requests = some_requests()

    assert ends(remote.run(requests)) == local(workers.config, requests)


@pytest.mark.parametrize("count", [1, 2])
def test_where_all_are_lost_and_none_comes_back_the_step_ends(workers, dispatcher, count) -> None:
    for number in range(count):
        workers.engine_worker(number=number)
    runners = [workers.rollout_worker(number) for number in range(count)]
    for runner in runners:
        runner.num_refused = 10**6

    with pytest.raises(
        WorkerLostError, match=r"runner-\d .* no other process took its place in 0 s"
    ):
        dispatcher(*runners, return_s=0.0).run(some_requests())


@pytest.mark.parametrize(
    "fault",
    [
        WorkerLostError("runner-0", cause="killed", is_final=True),
        RayLostError("killed: the raylet"),
    ],
)
def test_where_nobody_can_come_back_the_step_ends_at_once(two, fault) -> None:
    remote, _, runners, _ = two
    for runner in runners:
        runner.fault = fault

    with pytest.raises(type(fault), match="killed"):
        remote.run(some_requests())


def test_the_workers_tell_how_long_their_engines_were_busy(
    workers, dispatcher, keyed_engine
) -> None:
    engine = keyed_engine()
    engine.busy_s = 0.0
    engine.before_answer = lambda request: setattr(engine, "busy_s", engine.busy_s + 0.5)
    workers.engine_worker(engine)
    remote = dispatcher(workers.rollout_worker())

    for _ in range(2):
        remote.run(some_requests(2))

    assert (remote.busy_s, remote.num_hung) == (2 * 2 * 3 * 0.5, 0)


def test_a_closed_one_leaves_no_thread(workers, dispatcher) -> None:
    before = set(threading.enumerate())
    workers.engine_worker()
    runner = workers.rollout_worker()
    remote = dispatcher(runner)
    remote.run(some_requests())
    assert len(threading.enumerate()) > len(before)

    remote.close()
    runner.part.close()

    for thread in set(threading.enumerate()) - before:
        thread.join(LIMIT_S)
    assert set(threading.enumerate()) <= before
