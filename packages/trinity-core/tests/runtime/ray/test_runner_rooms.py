"""Runs in other processes end as they do in this one, also when such a process dies."""

from __future__ import annotations

import os
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from trinity.common.config.inference_model import InferenceModelConfig
from trinity.common.experience import Experience
from trinity.common.outcome import Outcome
from trinity.common.workflows import Workflow
from trinity.errors import EnvError, RoomLostError, RunFailedError, UnknownComponentError
from trinity.explorer.local import build_scheduler
from trinity.explorer.order import orders_of
from trinity.explorer.packing import PackedOrders
from trinity.runtime.ray import runner_room
from trinity.runtime.ray.engine_room import EngineRoom
from trinity.runtime.ray.remote_scheduler import RemoteScheduler
from trinity.runtime.ray.returning import Patience
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import model_over


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
    def run(self):
        if self.run_id_base == 1:
            raise EnvError("the shop is closed")
        return super().run()


def orders_for(*tasks, step=1):
    return [
        order
        for number, task in enumerate(tasks)
        for order in orders_of(task, batch=str(step), number=number, max_repeat_times=None)
    ]


def ends(results):
    return [
        (
            result.order.key,
            result.failure,
            [(e.eid, e.tokens.tolist(), e.logprobs.tolist(), e.reward) for e in result.experiences],
        )
        for result in results
    ]


@pytest.fixture
def local(keyed_engine):
    """Return a function that runs orders in this process, on engines of their own."""

    def run(config, orders, num_engines=1):
        engines = [keyed_engine() for _ in range(num_engines)]
        scheduler = build_scheduler(config, engines=engines, model=model_over(engines[0]))
        results = scheduler.run(orders)
        scheduler.close()
        return ends(results)

    return run


@pytest.fixture
def scheduler():
    """Return a function that builds a remote scheduler; all are closed after the test."""
    made = []

    def build(*runners, **patience):
        made.append(RemoteScheduler(runners, patience=Patience(**patience)))
        return made[-1]

    yield build
    for one in made:
        one.close()
        one.close()


def some_tasks(count=5, workflow=Asking):
    return [a_task(f"{n}?", workflow=workflow, repeat_times=3) for n in range(count)]


def test_a_step_is_one_message_each_way(rooms, scheduler, local) -> None:
    rooms.config.explorer.runner_per_model = 4
    orders = orders_for(*some_tasks())
    engine, runner = rooms.engine_room(), rooms.runner_room()

    results = scheduler(runner).run(orders)

    assert ends(results) == local(rooms.config, orders)
    assert [r.order for r in results] == orders
    assert runner.calls == ["run"]
    assert engine.calls.count("exchange") == 4  # 15 runs in waves of 4
    assert engine.part._engine.num_open_runs in {0, 3}  # that the last ended may be told later


def test_the_engines_share_the_tasks(rooms, scheduler, local) -> None:
    orders = orders_for(*some_tasks())
    for number in (0, 1):
        rooms.engine_room(number=number)
    runners = [rooms.runner_room(number) for number in (0, 1)]

    results = scheduler(*runners).run(orders)

    assert ends(results) == local(rooms.config, orders, num_engines=2)
    tasks = [{request.key.task for request in engine.requests} for engine in rooms.built]
    assert tasks == [{0, 2, 4}, {1, 3}]


def test_a_failed_run_arrives_as_data(rooms, scheduler, local) -> None:
    orders = orders_for(*some_tasks(2, Failing))
    rooms.engine_room()

    results = scheduler(rooms.runner_room()).run(orders)

    assert ends(results) == local(rooms.config, orders)
    failure = results[1].failure
    assert failure.outcome is Outcome.ENV_ERROR
    assert failure.message == "EnvError: the shop is closed"
    assert failure.where.startswith(__file__)


def test_what_concerns_every_run_arrives_as_itself(rooms, scheduler) -> None:
    rooms.engine_room()
    remote = scheduler(rooms.runner_room())
    task = a_task(workflow="math_workflow", reward_fn="no_such_reward")

    with pytest.raises(UnknownComponentError, match="no_such_reward"):
        remote.run(orders_for(task))


def test_the_first_failed_run_stops_all_if_it_is_to(rooms, scheduler, keyed_engine) -> None:
    rooms.config.explorer.on_failed_run = "fail"
    rooms.engine_room(number=0)
    runners = [rooms.runner_room(0)]
    rooms.engine_room(keyed_engine(is_stuck=True), number=1)
    runners.append(rooms.runner_room(1))
    tasks = [a_task(workflow=Failing, repeat_times=2), a_task(workflow=Asking)]

    with pytest.raises(RunFailedError, match="the shop is closed"):
        scheduler(*runners).run(orders_for(*tasks))
    assert runners[1].calls == ["run", "stop"]


def test_a_runner_that_dies_in_mid_run_does_its_runs_again(
    rooms, scheduler, local, keyed_engine
) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=8)
    engine = rooms.engine_room(stuck)
    runner = rooms.runner_room()
    orders = orders_for(*some_tasks())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(scheduler(runner).run, orders)
        assert stuck.arrived.wait(60)
        stuck.is_stuck = False
        runner.kill()
        results = running.result(20)

    assert ends(results) == local(rooms.config, orders)
    assert {request.key.attempt for request in stuck.requests} == {1}
    assert all(future.cancelled() for future in stuck.futures)
    assert engine.calls.count("open") >= 2


def test_a_runner_that_does_not_come_back_ends_the_step(rooms, scheduler) -> None:
    rooms.engine_room()
    runner = rooms.runner_room()
    runner.num_refused = 100

    with pytest.raises(RoomLostError, match="runner-0"):
        scheduler(runner, return_s=0.0).run(orders_for(*some_tasks()))


def test_another_explorer_stops_what_the_last_one_left_running(rooms, local, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=3)
    rooms.engine_room(stuck)
    runner = rooms.runner_room()
    orders = orders_for(*some_tasks(1))
    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(runner.call, "run", "old", PackedOrders.of(orders))
        assert stuck.arrived.wait(60)
        stuck.is_stuck = False
        packed = runner.call("run", "new", PackedOrders.of(orders))
        with pytest.raises(CancelledError):
            left.result(10)

    assert ends(packed.unpacked(orders)) == local(rooms.config, orders)
    assert stuck.num_open_runs in {0, 3}


def test_a_closed_runner_leaves_no_thread(rooms, scheduler) -> None:
    before = set(threading.enumerate())
    rooms.engine_room()
    runner = rooms.runner_room()
    remote = RemoteScheduler([runner])
    remote.run(orders_for(*some_tasks()))
    assert len(threading.enumerate()) > len(before)

    remote.close()
    runner.part.close()

    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


def test_a_task_travels_once_for_its_group() -> None:
    orders = orders_for(*some_tasks(2))
    packed = PackedOrders.of(orders)

    assert len(packed.groups) == 2
    assert packed.unpacked() == orders
    assert packed.unpacked()[0].task is not packed.unpacked()[1].task


def test_the_runner_tells_how_long_its_engine_was_busy(rooms, scheduler, keyed_engine) -> None:
    engine = keyed_engine()
    engine.busy_s = 0.0
    engine.before_answer = lambda request: setattr(engine, "busy_s", engine.busy_s + 0.5)
    rooms.engine_room(engine)
    remote = scheduler(rooms.runner_room())

    for _ in range(2):
        remote.run(orders_for(*some_tasks(2)))

    assert remote.busy_s == 2 * 2 * 3 * 0.5
    assert remote.num_hung == 0


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
    rooms, monkeypatch, judge, seen
) -> None:
    """Not on the machine's first one, with the judges of all other runners."""
    given, found = "2,3", []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(EngineRoom, "gpus", lambda room: given)
    monkeypatch.setattr(
        runner_room,
        "make_auxiliary_models",
        lambda *_, **__: found.append(os.environ["CUDA_VISIBLE_DEVICES"]) or [],
    )
    rooms.config.explorer.auxiliary_models = [judge]
    rooms.engine_room().num_refused = 1  # it comes back, and is asked again

    rooms.runner_room()

    assert found == seen


@pytest.mark.parametrize("given", ["4,5", None])
def test_an_engine_says_which_gpus_ray_gave_it(rooms, monkeypatch, given) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)

    assert rooms.engine_room().call("gpus") == given
