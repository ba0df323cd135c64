"""Groups that begin one by one in other processes end once each, also when such a process dies."""

from __future__ import annotations

import threading
import time

import pytest
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.errors import (
    EnvError,
    ModelError,
    RoomLostError,
    RunFailedError,
    UnknownComponentError,
)
from trinity.explorer.order import orders_of
from trinity.explorer.packing import PackedOrders
from trinity.runtime.ray import remote_groups, runner_room
from trinity.runtime.ray.remote_scheduler import RemoteScheduler
from trinity.runtime.ray.returning import Patience
from trinity_testing.builders import a_task

LIMIT_S = 20.0


class Asking(Workflow):
    """Asks once."""

    def run(self):
        (reply,) = self.model.chat([{"role": "user", "content": "?"}])
        return [Experience(tokens=reply.tokens, prompt_length=reply.prompt_length, reward=1.0)]


class Failing(Asking):
    def run(self):
        raise EnvError("the shop is closed")


@pytest.fixture
def scheduler(monkeypatch):
    """Return a function that builds one over runners; all are stopped after the test."""
    monkeypatch.setattr(remote_groups, "POLL_S", 0.2)
    made = []

    def build(*runners, **patience):
        made.append(RemoteScheduler(runners, patience=Patience(**patience)))
        return made[-1]

    yield build
    for one in made:
        one.stop()
        one.close()


def begin(scheduler, number, workflow=Asking):
    task = a_task(workflow=workflow, repeat_times=2)
    orders = orders_of(task, batch="1", number=number, max_repeat_times=None)
    scheduler.begin(number, orders)


def ends(scheduler, count):
    """Return the names of so many groups that end, and what each of their runs gave."""
    found, limit = {}, time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < limit:
        for name, reports in scheduler.ended(0.2):
            assert name not in found
            found[name] = [str(e.eid) for report in reports for e in report.experiences]
    return found


def expected(*numbers):
    return {n: [f"1/{n}/{run}/0" for run in range(2)] for n in numbers}


def test_groups_begin_while_others_are_on_their_way(rooms, scheduler, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=2)
    rooms.engine_room(stuck)
    remote = scheduler(rooms.runner_room())
    begin(remote, 0)
    assert stuck.arrived.wait(LIMIT_S)
    stuck.is_stuck = False
    begin(remote, 1)
    begin(remote, 2)

    assert ends(remote, 2) == expected(1, 2)
    assert remote.where(0) == "engine-0"


def test_a_group_goes_to_the_engine_that_has_the_fewest(rooms, scheduler, keyed_engine) -> None:
    engines = [keyed_engine(is_stuck=True) for _ in range(2)]
    runners = []
    for number, engine in enumerate(engines):
        rooms.engine_room(engine, number=number)
        runners.append(rooms.runner_room(number))
    remote = scheduler(*runners)
    for number in range(3):
        begin(remote, number)

    assert [remote.where(number) for number in range(3)] == ["engine-0", "engine-1", "engine-0"]


def test_a_runner_that_dies_gets_its_groups_again(rooms, scheduler, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=4)
    rooms.engine_room(stuck)
    runner = rooms.runner_room()
    remote = scheduler(runner)
    begin(remote, 0)
    begin(remote, 1)
    assert stuck.arrived.wait(LIMIT_S)
    stuck.is_stuck = False
    runner.kill()

    assert ends(remote, 2) == expected(0, 1)


def test_a_runner_that_died_between_two_calls_is_noticed(rooms, scheduler) -> None:
    rooms.engine_room()
    runner = rooms.runner_room()
    remote = scheduler(runner)
    begin(remote, 0)
    assert ends(remote, 1) == expected(0)
    runner.kill()  # nobody waits for it: the next call finds another process
    begin(remote, 1)

    assert ends(remote, 1) == expected(1)


@pytest.mark.parametrize("failing", ["ended", "engine_away_s"])
def test_ends_that_were_lost_on_their_way_are_told_again(rooms, scheduler, failing) -> None:
    """The process lives on, and its session: only the network failed for a moment."""
    rooms.engine_room()
    runner = rooms.runner_room()
    call, told, lost = runner.call, [], []

    def losing(method, *args):
        answer = call(method, *args)
        told.extend(answer if method == "ended" else [])
        if method == failing and told and not lost:
            lost.extend(told)
            raise RoomLostError(runner.name, cause="the network failed")
        return answer

    runner.call = losing
    remote = scheduler(runner)
    begin(remote, 0)

    assert ends(remote, 1) == expected(0)
    assert [name for name, _ in lost] == [0]
    begin(remote, 1)
    assert ends(remote, 1) == expected(1)
    assert remote.ended(0.5) == []  # neither is told twice


def test_ends_that_a_call_took_which_nobody_waits_for_any_more_are_told_by_the_next(rooms) -> None:
    engine = rooms.engine_room()
    runner = rooms.runner_room().part
    task = a_task(workflow=Asking, repeat_times=2)
    orders = orders_of(task, batch="1", number=0, max_repeat_times=None)
    runner.open("own")
    runner.begin("own", [("group", PackedOrders.of(orders))])
    lost = runner.ended("own", LIMIT_S)
    again = runner.ended("own", LIMIT_S)

    assert [name for name, _ in lost] == [name for name, _ in again] == ["group"]
    assert runner.ended("own", 0.1, ["group"]) == []
    assert runner.ended("own", 0.1) == []
    assert engine.calls.count("open") == 1


def test_a_runner_that_does_not_come_back_ends_the_run(rooms, scheduler) -> None:
    rooms.engine_room()
    runner = rooms.runner_room()
    runner.num_refused = 1000
    remote = scheduler(runner, return_s=0.0)
    begin(remote, 0)

    with pytest.raises(RoomLostError, match="runner-0"):
        ends(remote, 1)


@pytest.fixture
def two(rooms, scheduler, keyed_engine, monkeypatch):
    """Return a scheduler over two engines, whose groups move soon, and the rooms."""
    monkeypatch.setattr(remote_groups, "PROBE_S", 0.05)
    rooms.config.explorer.rollout_model.engine_num = 2
    engines = [rooms.engine_room(keyed_engine(), number=number) for number in (0, 1)]
    runners = [rooms.runner_room(number) for number in (0, 1)]
    return scheduler(*runners, move_s=0.3), engines, runners


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("lost", ["runner", "engine"])
def test_groups_of_an_engine_that_does_not_come_back_go_to_another(
    two, lost, is_final, caplog
) -> None:
    remote, engines, runners = two
    room = {"runner": runners, "engine": engines}[lost][0]
    room.fault = RoomLostError(room.name, cause="killed", is_final=is_final)
    for number in range(4):
        begin(remote, number)

    assert ends(remote, 4) == expected(0, 1, 2, 3)
    assert sorted(remote.moved()) == [0, 2]
    assert remote.moved() == []
    assert "engine-0 is lost for" in caplog.text
    assert "other engines make its 2 groups anew" in caplog.text


def test_where_all_runners_are_gone_for_good_the_run_ends(two) -> None:
    remote, _, runners = two
    for runner in runners:
        runner.fault = RoomLostError(runner.name, cause="killed", is_final=True)
    begin(remote, 0)
    begin(remote, 1)

    with pytest.raises(RoomLostError, match="killed"):
        ends(remote, 2)


@pytest.mark.parametrize("lost", ["runner", "engine"])
def test_an_engine_that_is_back_gets_groups_again(two, lost) -> None:
    remote, engines, runners = two
    room = {"runner": runners, "engine": engines}[lost][0]
    room.num_refused = 10**6
    begin(remote, 0)
    begin(remote, 1)
    assert ends(remote, 2) == expected(0, 1)
    begin(remote, 2)
    assert ends(remote, 1) == expected(2)
    room.num_refused = 0
    number, limit = 3, time.monotonic() + LIMIT_S
    while True:
        begin(remote, number)
        is_back = remote.where(number) == "engine-0"
        assert ends(remote, 1) == expected(number)
        number += 1
        if is_back:
            break
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_runner_whose_groups_others_made_may_stay_away_for_good(
    rooms, scheduler, keyed_engine, monkeypatch
) -> None:
    monkeypatch.setattr(remote_groups, "PROBE_S", 0.05)
    for number in (0, 1):
        rooms.engine_room(keyed_engine(), number=number)
    runners = [rooms.runner_room(number) for number in (0, 1)]
    remote = scheduler(*runners, move_s=0.2, return_s=0.2, num_losses=8)  # each after 0.1 s
    runners[0].num_refused = 10**6
    begin(remote, 0)
    begin(remote, 1)
    assert ends(remote, 2) == expected(0, 1)
    limit = time.monotonic() + 2.0
    while time.monotonic() < limit:  # lost more often than is forgiven
        assert remote.ended(0.2) == []
    begin(remote, 2)

    assert ends(remote, 1) == expected(2)


def test_an_engine_that_is_back_and_cannot_be_built_gets_no_groups(two) -> None:
    remote, engines, _ = two
    engines[0].fault = ModelError("no memory is left")
    begin(remote, 0)
    begin(remote, 1)
    assert ends(remote, 2) == expected(0, 1)
    time.sleep(0.1)
    for number in (2, 3, 4):
        begin(remote, number)
        assert ends(remote, 1) == expected(number)
    assert remote.ended(0.5) == []  # given up meanwhile
    begin(remote, 5)
    assert ends(remote, 1) == expected(5)


def test_the_only_engine_is_waited_for_and_that_is_told(rooms, scheduler, caplog) -> None:
    engine = rooms.engine_room()
    remote = scheduler(rooms.runner_room(), move_s=0.2, num_losses=10**6)
    engine.num_refused = 10**6
    begin(remote, 0)
    limit = time.monotonic() + LIMIT_S
    while "its 1 groups wait for it" not in caplog.text:
        assert remote.ended(0.1) == []
        assert time.monotonic() < limit
    engine.num_refused = 0

    assert ends(remote, 1) == expected(0)
    assert caplog.text.count("wait for it") == 1


def test_what_concerns_every_run_ends_it(rooms, scheduler) -> None:
    rooms.engine_room()
    remote = scheduler(rooms.runner_room())
    task = a_task(workflow="math_workflow", reward_fn="no_such_reward")
    remote.begin(0, orders_of(task, batch="1", number=0, max_repeat_times=None))

    with pytest.raises(UnknownComponentError, match="no_such_reward"):
        ends(remote, 1)


def test_the_first_failed_run_ends_it_if_it_is_to(rooms, scheduler) -> None:
    rooms.config.explorer.on_failed_run = "fail"
    rooms.engine_room()
    remote = scheduler(rooms.runner_room())
    begin(remote, 0, workflow=Failing)

    with pytest.raises(RunFailedError, match="the shop is closed"):
        ends(remote, 1)


def test_one_that_is_stopped_leaves_no_thread_that_listens(rooms, scheduler) -> None:
    rooms.engine_room()
    remote = scheduler(rooms.runner_room())
    begin(remote, 0)
    ends(remote, 1)
    remote.stop()

    names = [thread for thread in threading.enumerate() if thread.name == "runner-0-ends"]
    for thread in names:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in names)


def test_what_keeps_a_group_from_beginning_arrives_as_itself(
    rooms, scheduler, keyed_engine, monkeypatch
) -> None:
    stuck = keyed_engine(is_stuck=True)
    rooms.engine_room(stuck)
    runner = rooms.runner_room()
    remote = scheduler(runner)
    begin(remote, 0)
    assert stuck.arrived.wait(LIMIT_S)
    monkeypatch.setattr(remote_groups, "POLL_S", LIMIT_S)
    time.sleep(0.5)  # the runner is asked for ends, and has none

    def refuses(packed):
        raise UnknownComponentError("no workflow is called asking")

    monkeypatch.setattr(runner_room.PackedOrders, "unpacked", refuses)
    begin(remote, 1)

    with pytest.raises(UnknownComponentError, match="no workflow is called asking"):
        ends(remote, 1)
