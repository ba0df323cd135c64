"""When a batch starts, and in which order its requests stand."""

import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest
from trinity.common.ports import RunKey
from trinity.engines.batch import Batch
from trinity.engines.lockstep import LockstepBarrier, QueuedRequest
from trinity.errors import ModelError


@pytest.fixture
def gate():
    return LockstepBarrier(patience_s=3600)


@pytest.fixture
def waiting(ask):
    def make(**key):
        return QueuedRequest(request=ask(**key), future=Future())

    return make


def begin(gate, *keys):
    """Let runs begin, each given as (task, run)."""
    for task, run in keys:
        gate.run_began(RunKey(task=task, run=run))


def taken(gate):
    """Return a list that the next batch's (task, run) appear in, and the thread that waits."""
    order = []

    def take():
        work = gate.take()
        order.extend((w.request.key.task, w.request.key.run) for w in work.requests)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return order, thread


def test_without_runs_a_batch_starts_at_once(gate, waiting):
    order, thread = taken(gate)
    gate.submit(waiting(task=1))
    thread.join(60)
    assert order == [(1, 0)]


def test_a_batch_waits_for_every_run_and_stands_in_the_order_of_keys(gate, waiting):
    begin(gate, (2, 0), (2, 1), (1, 5))
    order, thread = taken(gate)
    gate.submit(waiting(task=2, run=1))
    gate.submit(waiting(task=2, run=0))
    thread.join(0.1)
    assert order == []
    gate.submit(waiting(task=1, run=5))
    thread.join(60)
    assert order == [(1, 5), (2, 0), (2, 1)]


def test_a_run_that_ends_is_not_waited_for(gate, waiting):
    begin(gate, (1, 0), (2, 0))
    order, thread = taken(gate)
    gate.submit(waiting(task=1))
    gate.run_ended(RunKey(task=2))
    thread.join(60)
    assert order == [(1, 0)]


def test_a_slow_run_is_waited_for_until_patience_ends_which_is_said_once(waiting, caplog):
    gate = LockstepBarrier(patience_s=0.3)
    start = time.monotonic()
    begin(gate, (1, 0), (2, 0))
    for _ in range(2):
        one = waiting(task=1)
        gate.submit(one)
        assert gate.take().requests == [one]
        gate.answered([one.request.key])
    assert time.monotonic() - start > 0.25
    assert caplog.text.count("a batch began without a rollout") == 1


def test_once_a_batch_began_without_a_rollout_the_next_ones_wait_a_second_at_most(waiting):
    gate = LockstepBarrier(patience_s=10.0)
    runs = gate._runs
    begin(gate, (1, 0), (2, 0))
    one = waiting(task=1)
    gate.submit(one)
    runs._away = {key: since - 10.0 for key, since in runs._away.items()}
    assert gate.take().requests == [one]
    gate.answered([one.request.key])
    assert 0.9 < runs.delay(time.monotonic()) <= 1.0


def test_a_batch_without_slow_runs_says_nothing(gate, waiting, caplog):
    begin(gate, (1, 0), (2, 0))
    gate.submit(waiting(task=1))
    gate.submit(waiting(task=2))
    assert len(gate.take().requests) == 2
    assert not caplog.text


def test_rollouts_that_take_seconds_to_begin_change_no_batch(tiny, start, ask, monkeypatch):
    """On a busy machine the first rollouts of a process take seconds to load what they need."""
    seen = []
    engine = start(tiny)
    watch_joins(monkeypatch, seen)
    begin(engine, (0, 0), (0, 1))
    first = engine.submit(ask(range(5, 8), run=0))
    with pytest.raises(TimeoutError):
        first.result(1.5)
    engine.submit(ask(range(5, 9), run=1)).result(60)
    first.result(60)
    assert seen == [[0, 1]]


def test_a_run_that_was_answered_is_waited_for_again(gate, waiting):
    begin(gate, (1, 0), (2, 0))
    first = [waiting(task=1), waiting(task=2)]
    for one in first:
        gate.submit(one)
    gate.take()
    gate.answered(one.request.key for one in first)
    order, thread = taken(gate)
    gate.submit(waiting(task=2))
    thread.join(0.1)
    assert order == []
    gate.submit(waiting(task=1))
    thread.join(60)
    assert order == [(1, 0), (2, 0)]


def test_two_requests_of_one_run_count_as_one_run(gate, waiting):
    begin(gate, (1, 0), (2, 0))
    order, thread = taken(gate)
    gate.submit(waiting(task=1))
    gate.submit(waiting(task=1))
    thread.join(0.1)
    assert order == []
    gate.submit(waiting(task=2))
    thread.join(60)
    assert len(order) == 3


def test_jobs_come_before_requests(gate, waiting):
    done = []
    gate.submit(waiting(task=1))
    gate.post(lambda: done.append("job"))
    work = gate.take()
    assert len(work.jobs) == 1
    assert work.requests == []
    assert len(gate.take().requests) == 1


def test_a_closed_gate_hands_back_what_waited_and_refuses_more(gate, waiting):
    one = waiting(task=1)
    gate.submit(one)
    assert gate.close() == [one]
    assert gate.take() is None
    with pytest.raises(ModelError, match="closed"):
        gate.submit(waiting(task=2))


def test_runs_in_threads_always_make_the_same_batches(tiny, start, ask, monkeypatch):
    """Eight runs that ask twice, in threads: every time the eight of them join together."""
    results = []
    for _ in range(2):
        seen, replies = [], {}
        engine = start(tiny, gate_patience_s=20.0)
        watch_joins(monkeypatch, seen)

        def run(index, engine=engine, replies=replies):
            first = engine.submit(ask(range(5, 8 + index), run=index)).result(60)
            time.sleep(0.002 * ((index * 5) % 8))
            second = engine.submit(ask(range(5, 9 + index), run=index)).result(60)
            replies[index] = (first, second)
            engine.run_ended(RunKey(run=index))

        begin(engine, *((0, run) for run in range(8)))
        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert seen == [list(range(8)), list(range(8))]
        results.append(replies)
    assert results[0] == results[1]


def watch_joins(monkeypatch, seen):
    """Append the runs that join together to the list."""
    join = Batch.join

    def watched(batch, rows):
        seen.append([row.request.key.run for row in rows])
        return join(batch, rows)

    monkeypatch.undo()
    monkeypatch.setattr(Batch, "join", watched)


def test_a_first_request_waits_while_first_requests_are_answered(gate, waiting):
    begin(gate, (1, 0))
    one = waiting(task=1)
    gate.submit(one)
    assert gate.take().requests == [one]
    begin(gate, (2, 0))
    two = waiting(task=2)
    gate.submit(two)
    assert gate.take_joining() == []
    gate.answered([one.request.key])
    gate.run_ended(one.request.key)
    assert gate.take_joining() == [two]


def test_a_later_request_and_a_retry_join_at_once(gate, waiting):
    begin(gate, (1, 0), (2, 0), (3, 0))
    one = waiting(task=1)
    gate.submit(one)
    second, retry = waiting(task=2, request=1), waiting(task=3, attempt=2)
    gate.submit(retry)
    gate.submit(second)
    assert gate.take_joining() == [one, second, retry]  # of the active runs, none is missing


def test_a_later_request_does_not_open_the_gate_for_others(gate, waiting):
    begin(gate, (1, 0), (2, 0), (3, 0))
    gate.submit(waiting(task=1))
    later = waiting(task=2, request=1)
    gate.submit(later)
    assert gate.take_joining() == [later]
    gate.answered([later.request.key])
    assert gate.take_joining() == []


def test_an_evaluation_never_joins_together_with_a_step(gate, waiting):
    step, evaluation = waiting(batch="3"), waiting(batch="3/eval")
    for one in (step, evaluation):
        gate.run_began(one.request.key)
    gate.submit(evaluation)
    gate.submit(step)
    assert gate.take().requests == [step]
    assert gate.take_joining() == []
    gate.answered([step.request.key])
    assert gate.take().requests == [evaluation]


def test_while_a_job_waits_nothing_joins(gate, waiting):
    gate.submit(waiting(task=1))
    gate.post(lambda: None)
    assert gate.has_jobs
    assert gate.take_joining() == []
    gate.take()
    assert len(gate.take_joining()) == 1


def test_a_cancelled_request_is_forgotten(gate, waiting):
    begin(gate, (1, 0), (2, 0))
    given_up, kept = waiting(task=1), waiting(task=2)
    gate.submit(given_up)
    given_up.future.cancel()
    gate.cancelled()
    gate.run_ended(given_up.request.key)
    gate.submit(kept)
    assert gate.take().requests == [kept]
    assert gate.take_cancelled()
    assert not gate.take_cancelled()


def test_the_run_that_ends_is_the_one_that_is_not_waited_for_any_more(gate, waiting):
    begin(gate, (1, 0), (2, 0), (3, 0))
    first = [waiting(task=task) for task in (1, 2, 3)]
    for one in first:
        gate.submit(one)
    gate.take()
    gate.answered(one.request.key for one in first)
    gate.run_ended(RunKey(task=1))  # not the one that was answered last
    gate.submit(waiting(task=3))
    assert gate.take_joining() == []  # run 2 is away still
    two = waiting(task=2)
    gate.submit(two)
    assert [w.request.key.task for w in gate.take().requests] == [2, 3]


def test_a_request_of_a_run_that_did_not_begin_stands_for_no_other(gate, waiting):
    begin(gate, (1, 0))
    gate.submit(waiting(task=9))
    assert gate.take_joining() == []
    gate.submit(waiting(task=1))
    assert len(gate.take().requests) == 2


def test_at_a_free_gate_nobody_waits_for_anybody(waiting):
    gate = LockstepBarrier(patience_s=3600, is_free=True)
    begin(gate, (1, 0), (2, 0))
    gate.submit(waiting(task=1))

    assert [w.request.key.task for w in gate.take().requests] == [1]
    gate.submit(waiting(task=2))
    assert [w.request.key.task for w in gate.take_joining()] == [2]


def compiling(waiting, **key):
    """Return a waiting request whose structure is compiled once its future says so."""
    return replace(waiting(**key), compiling=Future())


def test_the_runs_of_a_step_wait_for_one_whose_structure_is_compiled(waiting):
    gate = LockstepBarrier(patience_s=0.0)  # whoever is away is slow
    begin(gate, (1, 0), (2, 0))
    held, later, other = compiling(waiting, task=1), waiting(task=1, request=1), waiting(task=2)
    for one in (held, later, other):
        gate.submit(one)

    assert gate.take_joining() == []
    held.compiling.set_result("compiled")
    assert gate.take_joining() == [held, later, other]
    assert held.compiled == "compiled"


def test_a_later_request_that_is_compiled_keeps_the_first_ones_of_others_waiting(gate, waiting):
    begin(gate, (1, 0), (2, 0))
    held, other = compiling(waiting, task=1, request=1), waiting(task=2)
    gate.submit(held)
    gate.submit(other)

    assert gate.take_joining() == []
    held.compiling.set_result("compiled")
    assert gate.take_joining() == [held, other]


def test_who_is_of_no_run_does_not_wait_for_a_structure_of_a_run(gate, waiting):
    begin(gate, (1, 0))
    gate.submit(compiling(waiting, task=1))
    outside = waiting(task=9, request=1)
    gate.submit(outside)
    assert gate.take().requests == [outside]


def test_at_a_free_gate_the_request_alone_waits_for_its_structure(waiting):
    gate = LockstepBarrier(patience_s=3600, is_free=True)
    begin(gate, (1, 0), (2, 0))
    held, other = compiling(waiting, task=1), waiting(task=2)
    gate.submit(held)
    gate.submit(other)
    assert gate.take().requests == [other]
    order, thread = taken(gate)
    held.compiling.set_result("compiled")
    thread.join(60)
    assert order == [(1, 0)]


def test_a_structure_that_is_bad_is_answered_and_its_run_is_away(gate, waiting):
    begin(gate, (1, 0), (2, 0))
    bad, other = compiling(waiting, task=1), waiting(task=2)
    gate.submit(bad)
    gate.submit(other)
    bad.compiling.set_exception(ModelError("structure is bad"))

    with pytest.raises(ModelError, match="structure is bad"):
        bad.future.result(0)
    assert gate.num_waiting == 1
    assert gate.take_joining() == []  # the run may ask again
    gate.run_ended(bad.request.key)
    assert gate.take_joining() == [other]
    known = compiling(waiting, task=1)
    known.compiling.set_exception(ModelError("structure is bad"))
    with pytest.raises(ModelError, match="structure is bad"):
        gate.submit(known)
    assert gate.num_waiting == 0


def test_who_gave_up_or_was_closed_out_is_forgotten_by_what_is_compiled(gate, waiting):
    begin(gate, (1, 0), (2, 0))
    given_up, left, other = (
        compiling(waiting, task=1),
        compiling(waiting, task=1, request=1),
        waiting(task=2),
    )
    for one in (given_up, left, other):
        gate.submit(one)
    given_up.future.cancel()
    gate.cancelled()
    given_up.compiling.set_result("compiled")
    assert gate.take_joining() == []
    assert gate.close() == [other, left]
    left.compiling.set_exception(ModelError("too late"))
    assert not left.future.done()  # who closed the gate answers
