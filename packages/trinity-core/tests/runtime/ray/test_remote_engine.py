"""An engine in another process answers as one in this process does, also when that one dies."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from trinity.common.ports import (
    Completion,
    GenerationRequest,
    RunKey,
    WeightSnapshot,
    WeightVersion,
)
from trinity.errors import ModelError, WorkerLostError
from trinity.runtime.ray import engine_worker, remote_engine
from trinity.runtime.ray.engine_worker import EngineAnswers, EngineWorker
from trinity.runtime.ray.remote_engine import RemoteEngine
from trinity.runtime.supervisor import RestartPolicy
from trinity.synchronizer.weights import PackedWeights


def a_request(task=0, run=0, **fields):
    return GenerationRequest(
        prompt_token_ids=(1, 2, 3), key=RunKey(batch="1", task=task, run=run), **fields
    )


def answers_of(engine, requests):
    futures = [engine.submit(request) for request in requests]
    return [future.result(10) for future in futures]


@pytest.fixture
def remote():
    """Return a function that builds a remote engine; all are closed after the test."""
    made = []

    def build(worker, *, in_lockstep=True, **policy):
        made.append(RemoteEngine(worker, policy=RestartPolicy(**policy), in_lockstep=in_lockstep))
        return made[-1]

    yield build
    for engine in made:
        engine.close()
        engine.close()


def test_the_answers_are_those_of_the_engine(workers, remote, keyed_engine) -> None:
    requests = [a_request(run=run, n=2) for run in range(3)]
    engine = remote(workers.engine_worker())

    assert answers_of(engine, requests) == answers_of(keyed_engine(), requests)


def test_answers_arrive_as_they_left_though_completions_travel_as_tuples() -> None:
    completion = Completion(
        token_ids=(3, 4), logprobs=(-0.5, -0.25), finish_reason="stop", weight_version=7
    )
    failure = ModelError("too long")
    answers = EngineAnswers([(5, [completion] * 8), (6, failure)], WeightVersion(7), 0.5)

    packed = pickle.dumps(answers)
    back = pickle.loads(packed)

    assert back.outcomes[0] == (5, [completion] * 8)
    assert (back.version, back.busy_s) == (7, 0.5)
    assert (back.outcomes[1][0], str(back.outcomes[1][1])) == (6, "too long")
    assert b"Completion" not in packed


def test_a_wave_of_runs_is_one_message(workers, remote) -> None:
    worker = workers.engine_worker()
    engine = remote(worker)
    for run in range(32):
        engine.run_began(a_request(run=run).key)
    answers_of(engine, [a_request(run=run) for run in range(32)])
    for run in range(32):
        engine.run_ended(a_request(run=run).key)

    assert worker.calls == ["open", "exchange"]
    assert workers.built[0].num_requests == 32


def test_a_run_that_takes_its_time_to_ask_does_not_keep_the_others_waiting(
    workers, remote, monkeypatch
) -> None:
    monkeypatch.setattr(remote_engine, "_LINGER_OF_FIRST_S", 0.01)
    engine = remote(workers.engine_worker())
    engine.run_began(a_request(run=0).key)
    answers_of(engine, [a_request(run=0)])  # its threads are there
    engine.run_ended(a_request(run=0).key)
    for run in (1, 2):
        engine.run_began(a_request(run=run).key)
    time.sleep(0.2)  # and wait, as nobody asks

    assert len(answers_of(engine, [a_request(run=1)])) == 1  # though run 2 never does


def test_the_engine_hears_of_runs_in_the_order_in_which_they_began_and_ended(
    workers, remote
) -> None:
    worker = workers.engine_worker()
    engine = remote(worker)
    engine.run_began(a_request(run=0).key)
    answers_of(engine, [a_request(run=0)])
    engine.run_began(a_request(run=1).key)
    engine.run_ended(a_request(run=0).key)
    answers_of(engine, [a_request(run=1)])
    assert workers.built[0].num_open_runs == 1
    engine.run_ended(a_request(run=1).key)


def test_a_request_that_cannot_be_answered_fails_alone(workers, remote, keyed_engine) -> None:
    class Choosy(keyed_engine):
        def submit(self, request):
            if request.key.run == 1:
                raise ModelError("too long")
            return super().submit(request)

    engine = remote(workers.engine_worker(Choosy()))
    good, bad = engine.submit(a_request(run=0)), engine.submit(a_request(run=1))

    assert good.result(10)
    with pytest.raises(ModelError, match=r"^too long$"):
        bad.result(10)


def test_an_engine_that_dies_in_mid_generation_is_asked_again(
    workers, remote, keyed_engine
) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=4)
    worker = workers.engine_worker(stuck, keyed_engine())
    engine = remote(worker)
    for run in range(4):
        engine.run_began(a_request(run=run).key)
    requests = [a_request(run=run) for run in range(4)]
    futures = [engine.submit(request) for request in requests]
    assert stuck.arrived.wait(60)

    worker.kill()

    assert [future.result(10) for future in futures] == answers_of(keyed_engine(), requests)
    assert [request.key.attempt for request in workers.built[1].requests] == [1, 1, 1, 1]
    assert workers.built[1].num_open_runs == 4


def test_what_was_answered_is_not_asked_again(workers, remote, keyed_engine) -> None:
    worker = workers.engine_worker(keyed_engine(), keyed_engine())
    engine = remote(worker)
    answers_of(engine, [a_request(run=0)])
    worker.kill()
    answers_of(engine, [a_request(run=1)])

    assert [request.key.run for request in workers.built[1].requests] == [1]


def test_the_time_of_a_lost_process_still_counts(workers, remote, keyed_engine) -> None:
    first, second = keyed_engine(), keyed_engine()
    first.busy_s = second.busy_s = 0.0
    first.before_answer = lambda request: setattr(first, "busy_s", first.busy_s + 2.0)
    second.before_answer = lambda request: setattr(second, "busy_s", second.busy_s + 0.5)
    worker = workers.engine_worker(first, second)
    engine = remote(worker)
    answers_of(engine, [a_request(run=0)])
    worker.kill()
    answers_of(engine, [a_request(run=1)])

    assert engine.busy_s == 2.5


def test_an_engine_that_does_not_come_back_is_given_up(workers, remote, golden) -> None:
    worker = workers.engine_worker()
    engine = remote(worker, return_s=0.0)
    worker.num_refused = 100

    with pytest.raises(ModelError) as caught:
        answers_of(engine, [a_request()])

    golden(str(caught.value), "engine_lost")


def test_an_engine_that_dies_of_every_request_is_given_up(workers, remote, keyed_engine) -> None:
    class Deadly(keyed_engine):
        def submit(self, request):
            threading.Thread(target=worker.kill).start()
            return super().submit(request)

    worker = workers.engine_worker(*[Deadly(is_stuck=True) for _ in range(9)])
    engine = remote(worker, num_losses=2)

    with pytest.raises(ModelError, match="cannot be reached any more"):
        answers_of(engine, [a_request()])
    assert worker.calls.count("open") == 3


def test_a_closed_engine_leaves_no_thread_and_no_request(workers, keyed_engine) -> None:
    before = set(threading.enumerate())
    engine = RemoteEngine(workers.engine_worker(keyed_engine(is_stuck=True)))
    future = engine.submit(a_request())
    assert workers.built[0].arrived.wait(60)

    engine.close()

    with pytest.raises(ModelError, match="was closed before it answered"):
        future.result(0)
    with pytest.raises(ModelError, match="was closed"):
        engine.submit(a_request())
    assert set(threading.enumerate()) <= before


def test_a_request_that_is_given_up_is_ended_in_the_engine(workers, remote, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=2)
    worker = workers.engine_worker(stuck)
    engine = remote(worker)
    futures = [engine.submit(a_request(run=run)) for run in range(2)]
    assert stuck.arrived.wait(60)

    assert futures[0].cancel()
    until(stuck.futures[0].cancelled)
    assert not stuck.futures[1].cancelled()
    assert engine.num_open == 1
    stuck.futures[1].set_result([])

    assert futures[1].result(10) == []
    assert not futures[1].cancel()
    assert worker.part._session.futures == {}


def test_the_last_request_can_be_given_up_too(workers, remote, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True)
    engine = remote(workers.engine_worker(stuck))
    future = engine.submit(a_request())
    assert stuck.arrived.wait(60)

    assert future.cancel()

    until(stuck.futures[0].cancelled)
    assert engine.num_open == 0


def test_a_request_that_did_not_leave_never_leaves(workers, remote) -> None:
    worker = workers.engine_worker()
    engine = remote(worker)
    for run in range(2):
        engine.run_began(a_request(run=run).key)
    given_up = engine.submit(a_request(run=0))  # lingers: the other run may ask, too
    assert given_up.cancel()
    answers_of(engine, [a_request(run=run) for run in range(2)])

    assert worker.calls == ["open", "exchange"]
    assert [request.key.run for request in workers.built[0].requests] == [0, 1]


def test_what_was_given_up_is_not_asked_again(workers, remote, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True, num_wanted=2)
    worker = workers.engine_worker(stuck, keyed_engine())
    engine = remote(worker)
    first, second = [engine.submit(a_request(run=run)) for run in range(2)]
    assert stuck.arrived.wait(60)
    worker.num_refused = 1  # nobody hears of it

    assert first.cancel()
    worker.kill()

    assert second.result(10)
    assert [request.key.run for request in workers.built[1].requests] == [1]


def test_scores_come_from_the_engine(workers, remote, keyed_engine) -> None:
    worker = workers.engine_worker(keyed_engine(), keyed_engine())
    engine = remote(worker)
    wanted = keyed_engine().score((5, 6, 7)).result(0)

    assert engine.score((5, 6, 7), 0.5).result(10) == wanted
    worker.num_refused = 1  # it dies and comes back
    assert engine.score((5, 6, 7), 0.5).result(10) == wanted


def test_a_new_session_ends_the_one_before(workers, keyed_engine) -> None:
    stuck = keyed_engine(is_stuck=True)
    part = workers.engine_worker(stuck).part
    part.open("old")
    part.exchange("old", 1, [(True, [("1", 0, run) for run in range(3)]), (1, a_request())], 0.0)

    part.open("new")

    assert stuck.num_open_runs == 0
    assert stuck.futures[0].cancelled()
    with pytest.raises(WorkerLostError, match="was started anew"):
        part.exchange("old", 2, [], 0.0)


def test_the_news_of_a_session_are_told_in_the_order_of_their_numbers(
    workers, keyed_engine
) -> None:
    engine = keyed_engine()
    part = workers.engine_worker(engine).part
    part.open("one")
    later = threading.Thread(
        target=part.exchange, args=("one", 2, [(2, a_request(run=2))], 0.0), daemon=True
    )
    later.start()
    part.exchange("one", 1, [(1, a_request(run=1))], 0.0)
    later.join(60)

    assert [request.key.run for request in engine.requests] == [1, 2]


def test_weights_reach_the_engine_and_the_version_comes_back(workers, remote) -> None:
    worker = workers.engine_worker()
    engine = remote(worker)
    assert engine.version == 0

    snapshot = WeightSnapshot(version=WeightVersion(7), tensors={})
    worker.call("load_weights", PackedWeights.of(snapshot))
    engine.expect_new_weights()

    assert engine.version == 7
    assert worker.calls.count("version") == 2


def test_whoever_waits_for_weights_leaves_threads_to_the_one_who_brings_them(
    workers, keyed_engine
) -> None:
    """Calls of a runner that was killed are made nevertheless, beside those of the next one."""
    workers.engines = [keyed_engine()]
    part = EngineWorker(workers.context, number=0)
    part.load_weights(None)
    with ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(part.version) for _ in range(9)]
        staying = threads.submit(part.liveness)
        has_its_turn = part._serves.wait(10)
        part.serve()
        part.close()

    assert has_its_turn
    assert staying.done()
    assert any(isinstance(one.exception(0), WorkerLostError) for one in waiting)


def test_a_process_serves_nobody_before_it_has_the_weights_that_are_wanted(
    workers, keyed_engine, monkeypatch
) -> None:
    """The first that it is given may be old by then: the model's own, of a run that goes on."""
    monkeypatch.setattr(engine_worker, "_GIVEN_S", 0.05)
    workers.engines = [keyed_engine()]
    part = EngineWorker(workers.context, number=0)
    asks = (part.version, partial(part.open, "one"), partial(part.score, [1, 2], 1.0))

    def refuse_all():
        for ask in asks:
            with pytest.raises(
                WorkerLostError, match="waits: it was started anew, without weights"
            ):
                ask()

    refuse_all()
    with pytest.raises(WorkerLostError):
        part.liveness()
    part.load_weights(None)
    refuse_all()
    weights = PackedWeights.of(WeightSnapshot(version=WeightVersion(5), tensors={}))
    assert part.load_weights(weights) == 5
    staying = threading.Thread(target=part.liveness)  # who brought them has no newer ones
    staying.start()
    until(part._serves.is_set)

    assert part.version() == 5
    part.open("one")
    part.close()
    staying.join(10.0)


def test_who_stays_with_a_process_hears_that_it_is_closed(workers) -> None:
    part = workers.engine_worker().part
    staying = threading.Thread(target=part.liveness)
    staying.start()
    part.close()
    staying.join(10.0)

    assert not staying.is_alive()


def test_however_often_the_network_fails_one_thread_stays(workers) -> None:
    part, ended = workers.engine_worker().part, []

    def stay():
        try:
            part.liveness()
        except WorkerLostError as error:
            ended.append(str(error))

    calls = [threading.Thread(target=stay) for _ in range(9)]  # as many threads as the worker has
    for number, call in enumerate(calls, start=1):
        call.start()
        until(lambda number=number: part._num_liveness_calls == number)
    until(lambda: sum(call.is_alive() for call in calls) == 1)

    assert ended == ["the process of engine-0 was lost: another call took its place"] * 8
    part.close()
    calls[-1].join(10.0)


def until(is_true):
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_where_runs_do_not_wait_for_each_other_a_request_leaves_at_once(workers, remote) -> None:
    engine = remote(workers.engine_worker(), in_lockstep=False)
    for run in range(3):
        engine.run_began(a_request(run=run).key)

    for run in range(2):  # the third never asks
        assert engine.submit(a_request(run=run)).result(3.0)
