"""A process that is lost or gives no heartbeat is named in time, ended in time and waited for."""

from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace

import pytest
from trinity.errors import WorkerLostError, WorkerWaitsError
from trinity.runtime import supervisor
from trinity.runtime.supervisor import HealthMonitor, Recovery, RestartPolicy

AWAY = ""


class Stoppable:
    """A worker that answers, is stopped (None), or is being started again (AWAY)."""

    def __init__(self, name, *, comes_back=True):
        self.name = name
        self.comes_back = comes_back
        self.lost = None
        self.answer = f"process 7 on {name}"
        self.ended_at = []

    def heartbeat(self):
        return self.answered

    def answered(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def kill(self, *, comes_back):
        assert comes_back is self.comes_back
        self.ended_at.append(supervisor.time.monotonic())
        self.answer = "process 8"


@pytest.fixture
def clock(monkeypatch):
    """Let the seconds that are slept pass at once."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds):
        clock.now += seconds

    fake = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(supervisor, "time", fake)
    return clock


@pytest.fixture
def workers(clock):
    """Return an engine and a trainer, who can be stopped."""
    return SimpleNamespace(
        clock=clock, engine=Stoppable("engine-0"), trainer=Stoppable("trainer", comes_back=False)
    )


def watching(workers, *, limit_s):
    where = {worker.name: "process 7 on " + worker.name for worker in workers}
    return HealthMonitor(workers, limit_s=limit_s, where=where)


def look_for(workers, monitor, seconds):
    until_s = workers.clock.now + seconds
    while workers.clock.now < until_s:
        workers.clock.now += monitor._pause_s
        monitor.look()


@pytest.mark.parametrize("limit_s", [20.0, 60.0, 3600.0])
def test_a_room_that_is_stopped_is_named_and_ended_within_the_limit(
    workers, limit_s, caplog
) -> None:
    monitor = watching([workers.engine, workers.trainer], limit_s=limit_s)
    look_for(workers, monitor, limit_s)
    assert caplog.messages == []
    stopped = workers.clock.now

    workers.engine.answer = None
    look_for(workers, monitor, limit_s)

    (ended,) = workers.engine.ended_at
    assert ended - stopped <= limit_s
    named, lost = caplog.messages
    assert named.startswith("engine-0 (process 7 on engine-0) is unresponsive, it has not ans")
    assert f"(kill -CONT); it is ended within {limit_s:.0f} s (synchronizer.sync_tim" in named
    assert lost.endswith("and is ended: it is started again.")
    assert workers.trainer.ended_at == []


def test_a_trainer_that_is_stopped_takes_the_run_back_to_its_checkpoint(workers, caplog) -> None:
    monitor = watching([workers.trainer], limit_s=20.0)
    workers.trainer.answer = None
    look_for(workers, monitor, 20)

    assert len(workers.trainer.ended_at) == 1
    assert "is ended: the run goes back to its checkpoint." in caplog.text
    assert str(workers.trainer.lost).startswith(
        "the process of trainer was lost: it is there and has not answered for 1"
    )


def test_a_room_that_goes_on_in_time_and_one_that_is_started_again_are_left_alone(workers) -> None:
    monitor = watching([workers.engine, workers.trainer], limit_s=60.0)
    for _ in range(3):
        workers.engine.answer, workers.trainer.answer = None, AWAY
        look_for(workers, monitor, 30)
        workers.engine.answer = "process 7"
        look_for(workers, monitor, 12)

    assert workers.engine.ended_at == workers.trainer.ended_at == []


def test_a_driver_that_was_stopped_itself_takes_nobody_for_silent(workers) -> None:
    monitor = watching([workers.engine], limit_s=60.0)
    look_for(workers, monitor, 12)
    workers.clock.now += 600  # and nobody's answer has been read yet
    workers.engine.answer = None
    monitor.look()
    look_for(workers, monitor, 12)

    assert workers.engine.ended_at == []


def test_an_error_of_any_kind_ends_no_monitor_and_is_told_once(workers, caplog) -> None:
    monitor = watching([workers.engine, workers.trainer], limit_s=20.0)
    look_for(workers, monitor, 4)
    workers.engine.answer = AttributeError("'NoneType' object has no attribute 'worker'")
    workers.trainer.answer = None
    look_for(workers, monitor, 20)
    workers.engine.answer = AttributeError("the same, in words with an address: 0x7f")
    look_for(workers, monitor, 4)

    assert len(workers.trainer.ended_at) == 1
    assert workers.engine.ended_at == []
    (told,) = [line for line in caplog.messages if "could not be asked" in line]
    assert told.startswith("whether engine-0 is there could not be asked (AttributeError: 'None")


def test_a_driver_that_has_left_ray_asks_nobody_any_more(workers, caplog) -> None:
    def heartbeat():
        raise WorkerLostError("engine-0", cause="this process has left Ray", is_final=True)

    workers.engine.heartbeat = heartbeat
    monitor = watching([workers.engine, workers.trainer], limit_s=20.0)
    look_for(workers, monitor, 20)

    assert monitor._heartbeats == {}
    assert caplog.messages == []


def test_nobody_is_asked_or_ended_once_the_monitor_is_closed(workers) -> None:
    asking, goes_on = threading.Event(), threading.Event()

    def heartbeat():
        asking.set()
        assert goes_on.wait(20)
        return workers.engine.answered

    workers.engine.heartbeat = heartbeat
    monitor = watching([workers.engine, workers.trainer], limit_s=20.0)
    monitor._pause_s = 0.01
    monitor.start()
    assert asking.wait(20)
    closing = threading.Thread(target=monitor.close)
    closing.start()
    closing.join(0.1)
    is_awaited = closing.is_alive()  # by whoever closes
    goes_on.set()
    closing.join(20)

    assert is_awaited
    assert not monitor._thread.is_alive()
    assert list(monitor._heartbeats) == ["engine-0"]
    monitor.close()


LOST = WorkerLostError("engine-0", cause="killed")
WAITS = WorkerWaitsError("engine-0", cause="new weights did not reach it whole")


class Worker:
    name = "engine-0"

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def call(self, method, *args):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_a_room_that_says_it_waits_is_asked_again_as_long_as_it_says_so(clock) -> None:
    worker = Worker(*[WAITS] * 40, "an answer")

    policy = RestartPolicy(return_s=10.0, weights_s=100.0)
    assert Recovery(worker, policy=policy).wait_until_ready("open") == "an answer"

    assert clock.now > 20.0


def test_a_room_that_is_lost_is_waited_for_as_long_as_agreed(clock) -> None:
    said = "engine-0 was lost: killed, and no other process took its place in 10 s"

    with pytest.raises(WorkerLostError, match=said):
        Recovery(Worker(*[LOST] * 40), policy=RestartPolicy(return_s=10.0)).wait_until_ready("open")


def test_one_that_is_back_has_another_limit_for_its_weights(clock) -> None:
    said = "new weights did not reach it whole, and it was given none in 30 s"
    worker = Worker(*[LOST] * 7, *[WAITS] * 40)  # back after 9 s

    with pytest.raises(WorkerLostError, match=said):
        Recovery(worker, policy=RestartPolicy(return_s=10.0, weights_s=30.0)).wait_until_ready(
            "open"
        )

    assert 36.0 < clock.now < 42.0


def test_one_that_is_lost_again_has_the_whole_time_again_to_be_replaced(clock) -> None:
    worker = Worker(*[LOST] * 7, WAITS, *[LOST] * 5, "an answer")

    assert (
        Recovery(worker, policy=RestartPolicy(return_s=11.0)).wait_until_ready("open")
        == "an answer"
    )
    assert clock.now > 15.0


def test_a_room_that_waits_is_no_loss_and_no_process_is_said_to_be_lost(caplog) -> None:
    back = Recovery(Worker(), policy=RestartPolicy(num_losses=0))

    back.note_loss(pickle.loads(pickle.dumps(WAITS)))

    assert caplog.messages == [
        "engine-0 waits: new weights did not reach it whole; what it had to do is done once it has "
        "them"
    ]
    with pytest.raises(WorkerLostError, match="engine-0 was lost: it was started anew"):
        back.note_loss(WorkerLostError("engine-0", cause="it was started anew"))
