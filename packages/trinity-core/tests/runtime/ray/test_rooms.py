"""The processes of a stage: who cannot be built is named at once, and nothing outlives the run."""

from __future__ import annotations

import logging
import platform
from types import SimpleNamespace

import pytest
import torch
from ray.exceptions import ActorDiedError, ActorUnavailableError
from trinity.errors import ModelError, TrinityError, WorkerLostError
from trinity.runtime.ray import worker_group, worker_handle
from trinity.runtime.ray.worker_handle import WorkerHandle


class Asked:
    """A worker that says what it is at once, raises why it cannot be built, or is being built."""

    def __init__(self, name, outcome=None):
        self.name = name
        self.outcome = outcome
        self.ref = self

    def ask_facts(self):
        return self

    def result(self, *, timeout_s):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


BUILDING = object()


@pytest.fixture
def clock(monkeypatch):
    """Let waiting for workers that are being built take no time."""
    clock = SimpleNamespace(now=0.0, built_at=400.0)

    def wait(refs, *, num_returns, timeout):
        ready = [ref for ref in refs if ref.outcome is not BUILDING]
        clock.now += 0.0 if ready else timeout
        if clock.now > clock.built_at:
            for ref in refs:
                ref.outcome = "built"
        return ready[:num_returns], []

    monkeypatch.setattr(worker_group, "ray", SimpleNamespace(wait=wait))
    monkeypatch.setattr(worker_group, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_what_keeps_a_room_from_being_built_is_told_while_others_are_built(clock) -> None:
    asked = [
        Asked("trainer", BUILDING),
        Asked("engine-0", ModelError("the weights are damaged")),
    ]

    with pytest.raises(ModelError, match="the weights are damaged"):
        worker_group._facts(asked, lack=str)

    assert clock.now <= worker_group.LOOK_S


def test_rooms_are_told_in_the_order_of_their_start_and_the_slow_ones_are_named(
    clock, caplog
) -> None:
    asked = [Asked("trainer", BUILDING), Asked("engine-0", "engine")]

    assert worker_group._facts(asked, lack=str) == ["built", "engine"]
    assert [line.partition(".")[0] for line in caplog.messages] == [
        "trainer: not built for 302 s; the run gives up after 1800 s"
    ]


def test_what_the_cluster_lacks_is_said_after_half_a_minute(clock, caplog, monkeypatch) -> None:
    told = []
    monkeypatch.setattr(
        caplog.handler, "emit", lambda record: told.append((clock.now, record.getMessage()))
    )

    worker_group._facts([Asked("trainer", BUILDING)], lack=lambda: "the run waits for GPUs")

    assert told == [(at, "the run waits for GPUs") for at in (32.0, 302.0)]  # each 2 s is a look


def test_a_room_that_is_stopped_while_it_is_built_does_not_hold_the_run_for_ever(
    clock, caplog
) -> None:
    clock.built_at = float("inf")

    with pytest.raises(TrinityError) as gave_up:
        worker_group._facts(
            [Asked("engine-0", BUILDING), Asked("trainer", "trainer")], lack=str, limit_s=700.0
        )

    assert clock.now == 702.0
    assert str(gave_up.value).startswith("engine-0: not built 702 s after the start: stopped")
    assert "set synchronizer.sync_timeout to more seconds" in str(gave_up.value)
    assert [line.partition(";")[0] for line in caplog.messages] == [
        "engine-0: not built for 302 s",
        "engine-0: not built for 602 s",
    ]
    assert "goes on with kill -CONT" in caplog.text


def test_the_limit_of_a_start_counts_from_when_the_rooms_have_their_places(clock) -> None:
    clock.built_at = 1300.0

    def lack():
        return "the run waits for GPUs" if clock.now < 700 else ""

    assert worker_group._facts([Asked("trainer", BUILDING)], lack=lack, limit_s=710.0) == ["built"]


def test_a_queue_that_ends_long_after_it_was_told_leaves_the_whole_limit(clock, caplog) -> None:
    queue_s, limit_s = 9_500.0, 1_800.0  # told after 300, 600, ... 4,800 and 9,600 s
    clock.built_at = queue_s + limit_s - 2 * worker_group.LACK_S

    def lack():
        return "the run waits for GPUs" if clock.now < queue_s else ""

    built = worker_group._facts([Asked("trainer", BUILDING)], lack=lack, limit_s=limit_s)

    assert built == ["built"]
    assert len(caplog.messages) == 6  # after 32, 302, 602, 1,202, 2,402 and 4,802 s


def test_the_driver_leaves_rooms_on_its_machine_their_cores_and_takes_them_back(
    monkeypatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    here = platform.node()
    facts = [
        SimpleNamespace(name=name, host=host)
        for name, host in [("trainer", here), ("engine-0", here), ("engine-1", "another"),
                           ("runner-0", here)]
    ]  # fmt: skip
    own = worker_group.WorkerGroup(worker_spec=None, timeout_s=60.0)

    own._num_threads = worker_group._leave_cores(facts)
    meanwhile = torch.get_num_threads()
    own.close()
    after = torch.get_num_threads()
    torch.set_num_threads(before)

    assert (meanwhile, after) == (2, 6)


def test_threads_that_the_user_chose_stay(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")

    assert (
        worker_group._leave_cores([SimpleNamespace(name="trainer", host=platform.node())]) is None
    )


def test_who_calls_a_room_after_the_run_has_left_ray_starts_no_other(monkeypatch) -> None:
    """Ray would: any call of a process that is connected to none connects it."""
    monkeypatch.setattr(worker_handle.ray, "is_initialized", lambda: False)
    actor = SimpleNamespace(call=None)  # nobody calls it

    with pytest.raises(WorkerLostError, match="engine-0 was lost: this process has left Ray"):
        WorkerHandle(actor, "engine-0").call("liveness")
    WorkerHandle(actor, "engine-0").kill()


def test_rays_words_of_a_loss_are_logged_once_until_the_room_answers(caplog) -> None:
    caplog.set_level(logging.INFO, logger="trinity")
    away, dead = ActorUnavailableError("no route", b"1" * 16), ActorDiedError()

    for error in (away, away, dead, away, dead):
        worker_handle._log_loss("engine-7", error)
    worker_handle._lost.pop("engine-7")  # it answered
    worker_handle._log_loss("engine-7", away)

    assert ["no route" in line for line in caplog.messages] == [True, False, True]
    worker_handle._lost.clear()
