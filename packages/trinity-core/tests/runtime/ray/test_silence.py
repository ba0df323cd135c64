"""A process that is there and does not answer is named in time, and ended in time."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnavailableError
from trinity.runtime.ray import health
from trinity.runtime.ray.health import HealthMonitor

AWAY = ActorUnavailableError("it is started again", b"1" * 16)


class Stoppable:
    """A worker that answers, is stopped, or is being started again (an error)."""

    def __init__(self, name, *, comes_back=True):
        self.name = name
        self.comes_back = comes_back
        self.answer = f"process 7 on {name}"
        self.ended_at = []

    def heartbeat(self):
        return self

    def kill(self, *, comes_back):
        assert comes_back is self.comes_back
        self.ended_at.append(health.time.monotonic())
        self.answer = "process 8"


@pytest.fixture
def workers(monkeypatch):
    """Return an engine and a trainer, who can be stopped."""
    clock = SimpleNamespace(now=0.0)

    def get(worker, *, timeout):
        if isinstance(worker.answer, Exception):
            raise worker.answer
        return worker.answer

    def wait(asked, *, timeout):
        return [worker for worker in asked if worker.answer is not None], []

    fake = SimpleNamespace(get=get, wait=wait, is_initialized=lambda: True)
    monkeypatch.setattr(health, "ray", fake)
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return SimpleNamespace(
        clock=clock, engine=Stoppable("engine-0"), trainer=Stoppable("trainer", comes_back=False)
    )


def watching(workers, *, limit_s):
    where = {worker.name: "process 7 on " + worker.name for worker in workers}
    return HealthMonitor(workers, limit_s=limit_s, where=where)


def look_for(workers, silences, seconds):
    until_s = workers.clock.now + seconds
    while workers.clock.now < until_s:
        workers.clock.now += silences._pause_s
        silences.look()


@pytest.mark.parametrize("limit_s", [20.0, 60.0, 3600.0])
def test_a_room_that_is_stopped_is_named_and_ended_within_the_limit(
    workers, limit_s, caplog
) -> None:
    silences = watching([workers.engine, workers.trainer], limit_s=limit_s)
    look_for(workers, silences, limit_s)
    assert caplog.messages == []
    stopped = workers.clock.now

    workers.engine.answer = None
    look_for(workers, silences, limit_s)

    (ended,) = workers.engine.ended_at
    assert ended - stopped <= limit_s
    named, lost = caplog.messages
    assert named.startswith("engine-0 (process 7 on engine-0) has not answered for ")
    assert f"(kill -CONT); it is ended within {limit_s:.0f} s (synchronizer.sync_tim" in named
    assert lost.endswith("and is ended: it is started again.")
    assert workers.trainer.ended_at == []


def test_a_trainer_that_is_stopped_takes_the_run_back_to_its_checkpoint(workers, caplog) -> None:
    silences = watching([workers.trainer], limit_s=20.0)
    workers.trainer.answer = None
    look_for(workers, silences, 20)

    assert len(workers.trainer.ended_at) == 1
    assert "is ended: the run goes back to its checkpoint." in caplog.text


def test_a_room_that_goes_on_in_time_and_one_that_is_started_again_are_left_alone(workers) -> None:
    silences = watching([workers.engine, workers.trainer], limit_s=60.0)
    for _ in range(3):
        workers.engine.answer, workers.trainer.answer = None, AWAY
        look_for(workers, silences, 30)
        workers.engine.answer = "process 7"
        look_for(workers, silences, 12)

    assert workers.engine.ended_at == workers.trainer.ended_at == []


def test_a_driver_that_was_stopped_itself_takes_nobody_for_silent(workers) -> None:
    silences = watching([workers.engine], limit_s=60.0)
    look_for(workers, silences, 12)
    workers.clock.now += 600  # and nobody's answer has been read yet
    workers.engine.answer = None
    silences.look()
    look_for(workers, silences, 12)

    assert workers.engine.ended_at == []


def test_an_error_of_any_kind_ends_no_watch_and_is_told_once(workers, caplog) -> None:
    silences = watching([workers.engine, workers.trainer], limit_s=20.0)
    look_for(workers, silences, 4)
    workers.engine.answer = AttributeError("'NoneType' object has no attribute 'worker'")
    workers.trainer.answer = None
    look_for(workers, silences, 20)
    workers.engine.answer = AttributeError("the same, in words with an address: 0x7f")
    look_for(workers, silences, 4)

    assert len(workers.trainer.ended_at) == 1
    assert workers.engine.ended_at == []
    (told,) = [line for line in caplog.messages if "could not be asked" in line]
    assert told.startswith("whether engine-0 is there could not be asked (AttributeError: 'None")


def test_nobody_is_asked_or_ended_once_the_watch_is_closed(workers) -> None:
    asking, goes_on = threading.Event(), threading.Event()

    def heartbeat():
        asking.set()
        assert goes_on.wait(20)
        return workers.engine

    workers.engine.heartbeat = heartbeat
    silences = watching([workers.engine, workers.trainer], limit_s=20.0)
    silences._pause_s = 0.01
    silences.start()
    assert asking.wait(20)
    closing = threading.Thread(target=silences.close)
    closing.start()
    closing.join(0.1)
    is_awaited = closing.is_alive()  # by whoever closes
    goes_on.set()
    closing.join(20)

    assert is_awaited
    assert not silences._thread.is_alive()
    assert list(silences._asked) == ["engine-0"]
    silences.close()
