"""A worker that is lost is waited for so long, and so often; one that only waits is not lost."""

from __future__ import annotations

import pickle

import pytest
from trinity.errors import WorkerLostError, WorkerWaitsError
from trinity.runtime.ray import engine_supervisor
from trinity.runtime.ray.engine_supervisor import RestartPolicy, RestartWaiter

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


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Let the seconds that are slept pass at once."""
    now = [0.0]
    monkeypatch.setattr(engine_supervisor.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(engine_supervisor.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    return now


def test_a_room_that_says_it_waits_is_asked_again_as_long_as_it_says_so(clock) -> None:
    worker = Worker(*[WAITS] * 40, "an answer")

    patience = RestartPolicy(return_s=10.0, weights_s=100.0)
    assert RestartWaiter(worker, patience=patience).first_answer("open") == "an answer"

    assert clock[0] > 20.0


LOST = WorkerLostError("engine-0", cause="killed")


def test_a_room_that_is_lost_is_waited_for_as_long_as_agreed() -> None:
    said = "engine-0 was lost: killed, and no other process took its place in 10 s"

    with pytest.raises(WorkerLostError, match=said):
        RestartWaiter(Worker(*[LOST] * 40), patience=RestartPolicy(return_s=10.0)).first_answer(
            "open"
        )


def test_one_that_is_back_has_another_limit_for_its_weights(clock) -> None:
    said = "new weights did not reach it whole, and it was given none in 30 s"
    worker = Worker(*[LOST] * 7, *[WAITS] * 40)  # back after 9 s

    with pytest.raises(WorkerLostError, match=said):
        RestartWaiter(worker, patience=RestartPolicy(return_s=10.0, weights_s=30.0)).first_answer(
            "open"
        )

    assert 36.0 < clock[0] < 42.0


def test_one_that_is_lost_again_has_the_whole_time_again_to_be_replaced(clock) -> None:
    worker = Worker(*[LOST] * 7, WAITS, *[LOST] * 5, "an answer")

    assert (
        RestartWaiter(worker, patience=RestartPolicy(return_s=11.0)).first_answer("open")
        == "an answer"
    )
    assert clock[0] > 15.0


def test_a_room_that_waits_is_no_loss_and_no_process_is_said_to_be_lost(caplog) -> None:
    back = RestartWaiter(Worker(), patience=RestartPolicy(num_losses=0))

    back.lost(pickle.loads(pickle.dumps(WAITS)))

    assert caplog.messages == [
        "engine-0 waits: new weights did not reach it whole; what it had to do is done once it has "
        "them"
    ]
    with pytest.raises(WorkerLostError, match="engine-0 was lost: it was started anew"):
        back.lost(WorkerLostError("engine-0", cause="it was started anew"))
