"""What a runner or an engine that is lost was to make, others make, and each run is made once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.errors import ModelError, RoomLostError
from trinity.explorer.local import build_scheduler
from trinity.explorer.order import orders_of
from trinity.explorer.packing import PackedOrders
from trinity.runtime.ray import shared_run
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


def some_tasks(count=5):
    return [a_task(f"{n}?", workflow=Asking, repeat_times=3) for n in range(count)]


@pytest.fixture
def two(rooms, scheduler, keyed_engine):
    """Return a scheduler over two engines, the rooms of both, and the second engine, stuck."""
    stuck = keyed_engine(is_stuck=True)
    engines = [rooms.engine_room(number=0), rooms.engine_room(stuck, keyed_engine(), number=1)]
    runners = [rooms.runner_room(number) for number in (0, 1)]
    return scheduler(*runners, move_s=0.3), engines, runners, stuck


@pytest.mark.parametrize("lost", ["runner", "engine"])
def test_what_one_that_is_lost_was_to_make_others_make(two, rooms, local, lost, caplog) -> None:
    remote, engines, runners, stuck = two
    orders = orders_for(*some_tasks())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(remote.run, orders)
        assert stuck.arrived.wait(60)
        room = {"runner": runners, "engine": engines}[lost][1]
        room.num_refused = 10**6  # no other takes its place
        room.kill()
        results = running.result(20)

    assert ends(results) == local(rooms.config, orders)
    said = "engine-1 is lost: other engines make its 6 runs of this step that had not ended"
    assert said in caplog.text


@pytest.mark.parametrize("on_failed_run", ["drop", "fail"])
@pytest.mark.parametrize("how", ["is not built again", "is gone for good"])
def test_what_an_engine_that_never_answers_again_was_to_make_others_make(
    rooms, scheduler, keyed_engine, local, how, on_failed_run
) -> None:
    rooms.config.explorer.on_failed_run = on_failed_run
    rooms.config.explorer.rollout_model.engine_num = 2
    stuck = keyed_engine(is_stuck=True)
    rooms.engine_room(number=0)
    engine = rooms.engine_room(stuck, keyed_engine(), number=1)
    runners = [rooms.runner_room(number) for number in (0, 1)]
    remote = scheduler(*runners, move_s=0.3)
    first, second = (orders_for(*some_tasks(), step=step) for step in (1, 2))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(remote.run, first)
        assert stuck.arrived.wait(60)
        if how == "is not built again":
            engine.fault = ModelError("no memory is left")
        else:
            engine.fault = RoomLostError("engine-1", cause="killed", is_final=True)
        engine.kill()
        results = running.result(40)
    num_calls = runners[1].calls.count("run")

    assert ends(results) == local(rooms.config, first)
    assert ends(remote.run(second)) == local(rooms.config, second)
    assert runners[1].calls.count("run") == num_calls


def test_where_all_engines_are_lost_each_is_waited_for_as_the_only_one_is(
    rooms, scheduler, keyed_engine, local
) -> None:
    """They are there again, and get their weights, later than a runner's process would be."""
    stuck = [keyed_engine(is_stuck=True) for _ in range(2)]
    engines = [rooms.engine_room(one, keyed_engine(), number=n) for n, one in enumerate(stuck)]
    runners = [rooms.runner_room(number) for number in (0, 1)]
    orders = orders_for(*some_tasks())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(scheduler(*runners, move_s=0.0, return_s=0.5).run, orders)
        assert all(one.arrived.wait(60) for one in stuck)
        for engine in engines:
            engine.num_refused = 10**6
            engine.kill()
        time.sleep(6.0)
        assert not running.done()
        for engine in engines:
            engine.num_refused = 0
        results = running.result(40)

    assert ends(results) == local(rooms.config, orders)


def test_one_whose_engine_is_back_within_a_minute_makes_its_runs_itself(
    rooms, scheduler, keyed_engine, local, caplog
) -> None:
    stuck = keyed_engine(is_stuck=True)
    engines = [rooms.engine_room(number=0), rooms.engine_room(stuck, keyed_engine(), number=1)]
    runners = [rooms.runner_room(number) for number in (0, 1)]
    orders = orders_for(*some_tasks())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(scheduler(*runners).run, orders)
        assert stuck.arrived.wait(60)
        engines[1].num_refused = 8  # it is away for seconds
        engines[1].kill()
        results = running.result(40)

    assert ends(results) == local(rooms.config, orders)
    assert runners[0].calls.count("run") == runners[1].calls.count("run") == 1
    assert "cut_run" not in runners[1].calls


def test_runs_that_had_ended_are_not_made_anew(rooms, scheduler, keyed_engine, local) -> None:
    class DiesAfterThree(keyed_engine):
        def submit(self, request):
            self.is_stuck = len(self.requests) >= 3
            return super().submit(request)

    rooms.config.explorer.runner_per_model = 3  # a task after the other
    engine = DiesAfterThree(num_wanted=4)
    rooms.engine_room(number=0)
    dying = rooms.engine_room(engine, keyed_engine(), number=1)
    runners = [rooms.runner_room(number) for number in (0, 1)]
    orders = orders_for(*some_tasks())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(scheduler(*runners, move_s=0.3).run, orders)
        assert engine.arrived.wait(60)
        dying.num_refused = 10**6
        dying.kill()
        results = running.result(40)

    assert ends(results) == local(rooms.config, orders)
    other = [(request.key.task, request.key.run) for request in rooms.built[0].requests]
    assert sorted(other) == [(task, run) for task in (0, 2, 3, 4) for run in range(3)]


def test_the_others_begin_once_the_old_call_has_ended_or_its_limit_is_over(
    two, rooms, local, monkeypatch
) -> None:
    remote, engines, runners, stuck = two
    monkeypatch.setattr(shared_run, "CUT_S", 1.0)
    call, cuts = runners[1].call, []

    def deaf(method, *args):
        if method == "cut_run":
            cuts.append(runners[0].calls.count("run"))  # it is free, and has not begun the others'
            return None
        return call(method, *args)

    runners[1].call = deaf
    orders = orders_for(*some_tasks())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(remote.run, orders)
        assert stuck.arrived.wait(60)
        engines[1].num_refused = 10**6
        engines[1].kill()
        results = running.result(20)
    call("stop")

    assert ends(results) == local(rooms.config, orders)
    assert cuts[0] == 1
    assert runners[0].calls.count("run") == 2


def test_a_task_that_ends_every_runner_ends_the_step(two) -> None:
    remote, _, runners, stuck = two
    stuck.is_stuck, deaths = False, []
    for runner in runners:
        call = runner.call

        def dying(method, *args, call=call, runner=runner):
            if method == "run" and any(order.key.task == 1 for order in args[1].unpacked()):
                deaths.append(runner.name)
                raise RoomLostError(runner.name, cause="killed")
            return call(method, *args)

        runner.call = dying

    with pytest.raises(RoomLostError, match="it is number 4 in turn that is while it makes task 1"):
        remote.run(orders_for(*some_tasks()))

    assert sorted(set(deaths)) == ["runner-0", "runner-1"]
    assert len(deaths) == 4


def test_where_no_runner_comes_back_for_good_the_step_ends_at_once(two) -> None:
    remote, _, runners, _ = two
    for runner in runners:

        def gone(method, *args, name=runner.name):
            raise RoomLostError(name, cause="killed", is_final=True)

        runner.call = gone

    with pytest.raises(RoomLostError, match="killed"):
        remote.run(orders_for(*some_tasks()))


def test_a_call_that_has_ended_is_not_cut_nor_is_the_next_one(rooms, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True)
    rooms.engine_room(stuck)
    runner = rooms.runner_room()
    orders = orders_for(*some_tasks(1))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(runner.call, "run", "own", PackedOrders.of(orders), "second")
        assert stuck.arrived.wait(60)
        runner.call("cut_run", "first")
        runner.call("cut_run", "")
        assert not running.done()
        runner.call("cut_run", "second")
        reports = running.result(20).unpacked(orders)

    assert [report.failure.is_cut for report in reports] == [True] * 3


def test_the_next_step_asks_one_that_is_lost_for_nothing_before_it_is_back(
    two, rooms, local
) -> None:
    remote, engines, runners, stuck = two
    first, second = (orders_for(*some_tasks(), step=step) for step in (1, 2))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(remote.run, first)
        assert stuck.arrived.wait(60)
        engines[1].num_refused = 10**6
        engines[1].kill()
        running.result(20)
    num_calls = runners[1].calls.count("run")

    assert ends(remote.run(second)) == local(rooms.config, second)
    assert runners[1].calls.count("run") == num_calls
    engines[1].num_refused, number, limit = 0, 3, time.monotonic() + 60
    while runners[1].calls.count("run") == num_calls:
        orders = orders_for(*some_tasks(), step=number)
        assert ends(remote.run(orders)) == local(rooms.config, orders)
        assert time.monotonic() < limit
        time.sleep(0.2)
        number += 1


def test_where_all_are_lost_the_first_that_is_back_makes_what_there_is(two, rooms, local) -> None:
    remote, _, runners, stuck = two
    for runner in runners:
        runner.num_refused = 4
    stuck.is_stuck = False
    orders = orders_for(*some_tasks())

    assert ends(remote.run(orders)) == local(rooms.config, orders)


def test_where_all_are_lost_and_none_comes_back_the_step_ends(rooms, scheduler) -> None:
    for number in (0, 1):
        rooms.engine_room(number=number)
    runners = [rooms.runner_room(number) for number in (0, 1)]
    for runner in runners:
        runner.num_refused = 10**6

    with pytest.raises(RoomLostError, match="engine-0, engine-1 was lost: none was back in 0 s"):
        scheduler(*runners, return_s=0.0).run(orders_for(*some_tasks()))
