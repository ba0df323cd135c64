"""Groups that begin one by one on workers end once each, whichever workers are lost."""

from __future__ import annotations

import time

import pytest
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.errors import UnknownComponentError, WorkerLostError
from trinity.explorer.requests import requests_of
from trinity.runtime.ray import rollout_worker
from trinity_testing.builders import a_task

LIMIT_S = 20.0


class Asking(Workflow):
    """Asks once."""

    def run(self):
        (reply,) = self.model.chat([{"role": "user", "content": "?"}])
        return [Experience(tokens=reply.tokens, prompt_length=reply.prompt_length, reward=1.0)]


def begin(dispatcher, number, workflow=Asking):
    task = a_task(workflow=workflow, repeat_times=2)
    requests = requests_of(task, batch="1", number=number, max_repeat_times=None)
    dispatcher.begin(number, requests)


def ends(dispatcher, count):
    """Return the names of so many groups that end, and what each of their runs gave."""
    found, limit = {}, time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < limit:
        for name, reports in dispatcher.ended(0.2):
            assert name not in found
            found[name] = [str(e.eid) for report in reports for e in report.experiences]
    return found


def expected(*numbers):
    return {n: [f"1/{n}/{run}/0" for run in range(2)] for n in numbers}


def test_groups_begin_while_others_are_on_their_way(workers, dispatcher, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=2)
    workers.engine_worker(stuck)
    remote = dispatcher(workers.rollout_worker())
    begin(remote, 0)
    assert stuck.arrived.wait(LIMIT_S)
    stuck.is_stuck = False
    begin(remote, 1)
    begin(remote, 2)

    assert ends(remote, 2) == expected(1, 2)
    assert remote.where(0) == "engine-0"


def test_a_group_goes_to_the_engine_that_has_the_fewest(workers, dispatcher, keyed_engine) -> None:
    engines = [keyed_engine(is_stuck=True) for _ in range(2)]
    runners = []
    for number, engine in enumerate(engines):
        workers.engine_worker(engine, number=number)
        runners.append(workers.rollout_worker(number))
    remote = dispatcher(*runners)
    for number in range(3):
        begin(remote, number)

    assert [remote.where(number) for number in range(3)] == ["engine-0", "engine-1", "engine-0"]


def test_a_runner_that_died_between_two_calls_is_noticed(workers, dispatcher) -> None:
    workers.engine_worker()
    runner = workers.rollout_worker()
    remote = dispatcher(runner)
    begin(remote, 0)
    assert ends(remote, 1) == expected(0)
    runner.kill()  # nobody waits for it: the next call finds another process
    begin(remote, 1)

    assert ends(remote, 1) == expected(1)


def test_a_group_whose_end_was_lost_on_its_way_is_run_again(workers, dispatcher) -> None:
    """The process lives on: only the network failed for a moment."""
    workers.engine_worker()
    runner = workers.rollout_worker()
    call, lost = runner.call, []

    def losing(method, *args, **kwargs):
        answer = call(method, *args, **kwargs)
        if method == "ended" and answer[0] and not lost:
            lost.extend(answer[0])
            raise WorkerLostError(runner.name, cause="the network failed")
        return answer

    runner.call = losing
    remote = dispatcher(runner)
    begin(remote, 0)

    assert ends(remote, 1) == expected(0)
    assert len(lost) == 1
    begin(remote, 1)
    assert ends(remote, 1) == expected(1)
    assert remote.ended(0.5) == []  # neither is told twice
    assert remote.moved() == [0]


@pytest.fixture
def two(workers, dispatcher, keyed_engine):
    """Return a dispatcher over two engines, whose groups move soon, and the workers."""
    workers.config.explorer.rollout_model.engine_num = 2
    engines = [workers.engine_worker(keyed_engine(), number=number) for number in (0, 1)]
    runners = [workers.rollout_worker(number) for number in (0, 1)]
    return dispatcher(*runners, move_s=0.3), engines, runners


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("lost", ["runner", "engine"])
def test_groups_of_an_engine_that_does_not_come_back_go_to_another(
    two, lost, is_final, caplog
) -> None:
    remote, engines, runners = two
    worker = {"runner": runners, "engine": engines}[lost][0]
    worker.fault = WorkerLostError(worker.name, cause="killed", is_final=is_final)
    begin(remote, 0)
    begin(remote, 1)

    assert ends(remote, 2) == expected(0, 1)
    assert remote.moved() == [0]
    assert remote.moved() == []
    said = {
        "runner": "runner-0 was lost: killed; its 1 rollout requests are queued again",
        "engine": "s: other engines take over 1 of its rollout requests",
    }
    assert said[lost] in caplog.text


@pytest.mark.parametrize("lost", ["runner", "engine"])
def test_an_engine_that_is_back_gets_groups_again(two, lost) -> None:
    remote, engines, runners = two
    worker = {"runner": runners, "engine": engines}[lost][0]
    worker.num_refused = 10**6
    begin(remote, 0)
    begin(remote, 1)
    assert ends(remote, 2) == expected(0, 1)
    begin(remote, 2)
    assert ends(remote, 1) == expected(2)
    worker.num_refused = 0
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


def test_a_runner_whose_groups_others_run_may_stay_away_for_good(
    workers, dispatcher, keyed_engine
) -> None:
    for number in (0, 1):
        workers.engine_worker(keyed_engine(), number=number)
    runners = [workers.rollout_worker(number) for number in (0, 1)]
    remote = dispatcher(*runners, return_s=0.2)
    runners[0].num_refused = 10**6
    begin(remote, 0)
    begin(remote, 1)
    assert ends(remote, 2) == expected(0, 1)
    assert remote.ended(1.0) == []  # it is away for longer than the only one is waited for
    begin(remote, 2)

    assert ends(remote, 1) == expected(2)
    assert remote.where(2) == "no engine"


def test_a_group_that_is_cut_ends_as_far_as_it_is(workers, dispatcher, keyed_engine) -> None:
    class StuckAfterThree(keyed_engine):
        def submit(self, request):
            self.is_stuck = len(self.requests) >= 3
            return super().submit(request)

    workers.config.explorer.runner_per_model = 2
    engine = StuckAfterThree(num_wanted=4)
    workers.engine_worker(engine)
    remote = dispatcher(workers.rollout_worker())
    begin(remote, 0)
    begin(remote, 1)  # one of its two runs has an answer
    assert ends(remote, 1) == expected(0)
    assert engine.arrived.wait(LIMIT_S)
    time.sleep(0.5)  # until that answer has arrived
    remote.cut(1)

    assert ends(remote, 1) == {1: ["1/1/0/0"]}


def test_a_group_that_is_cut_is_not_begun_again_where_its_runner_is_lost(
    workers, dispatcher, keyed_engine
) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=2)
    workers.engine_worker(stuck)
    runner = workers.rollout_worker()
    remote = dispatcher(runner)
    call = runner.call
    runner.call = lambda method, *args, **kwargs: method == "cut" or call(method, *args, **kwargs)
    begin(remote, 0)
    assert stuck.arrived.wait(LIMIT_S)
    remote.cut(0)  # it is lost on its way
    runner.num_refused = 5
    runner.kill()
    begin(remote, 1)  # waits for a runner
    remote.cut(1)

    assert ends(remote, 2) == {0: [], 1: []}
    assert len(stuck.requests) == 2


def test_the_only_engine_is_waited_for_and_that_is_told(workers, dispatcher, caplog) -> None:
    engine = workers.engine_worker()
    remote = dispatcher(workers.rollout_worker(), move_s=0.2, num_losses=10**6)
    engine.num_refused = 10**6
    begin(remote, 0)
    limit = time.monotonic() + LIMIT_S
    while "engine-0: lost for 0 s, and there is no other engine: 1 rollout requests wait" not in (
        caplog.text
    ):
        assert remote.ended(0.1) == []
        assert time.monotonic() < limit
    engine.num_refused = 0

    assert ends(remote, 1) == expected(0)
    assert caplog.text.count("there is no other engine") == 1


def test_what_keeps_a_group_from_beginning_arrives_as_itself(
    workers, dispatcher, keyed_engine, monkeypatch
) -> None:
    stuck = keyed_engine(is_stuck=True)
    workers.engine_worker(stuck)
    runner = workers.rollout_worker()
    remote = dispatcher(runner, poll_s=LIMIT_S)
    begin(remote, 0)
    assert stuck.arrived.wait(LIMIT_S)
    time.sleep(0.5)  # the runner is asked for ends, and has none

    def refuses(packed, find):
        raise UnknownComponentError("no workflow is called asking")

    monkeypatch.setattr(rollout_worker.PackedRequests, "unpacked", refuses)
    begin(remote, 1)

    with pytest.raises(UnknownComponentError, match="no workflow is called asking"):
        ends(remote, 1)
