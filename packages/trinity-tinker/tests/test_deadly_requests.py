"""Requests that the server dies of are given up after a few starts, and the others go on."""

from __future__ import annotations

import threading

import pytest
from trinity_tinker import run_states
from trinity_tinker.kills import Kills
from trinity_tinker.server import TinkerServer

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"  # of each death
)
NAME, KEY = "Qwen/Tiny", "tml-of-a-test"
TOKENS = [71, 104, 101, 32, 113]
DATUM = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:], "weights": [1.0] * 4}
MARK = 120
DEADLY = {**DATUM, "target_tokens": [*TOKENS[1:-1], MARK]}
KILLED = "the server was killed 3 times while executing this request"
NOT_WHOLE = "The batch is refused up to and including its optim_step"


class MortalServer:
    """Is started again after each death; of a kill, a SystemExit in the thread of runs is left."""

    def __init__(self, folder, base, make_client) -> None:
        self._folder, self._base, self._make_client = folder, base, make_client
        self.dies_of = MARK  # a target of a row
        self.death = threading.Semaphore(0)
        self.start()

    def start(self) -> None:
        self._server = TinkerServer([self._base], self._folder, keys=[KEY])
        self.client = self._make_client(self._server.base_url)

    def start_after_deaths(self, count: int) -> None:
        for _ in range(count):
            assert self.death.acquire(timeout=30)
            self.close()
            self.start()

    def close(self) -> None:
        self._server.close()

    def error(self, request: str) -> str:
        """Return why a request failed by the server's fault."""
        found = self.client.answer(request).json()
        assert found["category"] == "server"
        return found["error"]


@pytest.fixture
def server(base, tmp_path, make_client, monkeypatch):
    backward = run_states.backward
    made = MortalServer(tmp_path / "data", base, make_client)

    def may_die(trainer, run, rows, loss_of_row, **how):
        if any(made.dies_of in row.targets_N for row in rows):
            made.death.release()
            raise SystemExit
        return backward(trainer, run, rows, loss_of_row, **how)

    monkeypatch.setattr(run_states, "backward", may_die)
    yield made
    made.close()


@pytest.fixture
def _kills(monkeypatch):
    monkeypatch.setattr(Kills, "note_end", lambda kills, **how: None)


@pytest.mark.usefixtures("_kills")
def test_a_pass_that_the_server_died_of_three_times_is_given_up_and_all_others_are_done(server):
    session = server.client.session()
    model, other = (server.client.model(session, number) for number in range(2))
    first = server.client.backward(model, 1, [DATUM])
    server.client.output(first)
    deadly = server.client.backward(model, 2, [DEADLY])
    rest = server.client.backward(model, 3, [DATUM])
    step = server.client.step(model, 4)
    waiting = server.client.backward(other, 1, [DATUM])
    server.start_after_deaths(3)

    told = server.error(deadly)
    assert KILLED in told
    assert "The passes since the last optim_step are dropped. The rest of the batch is" in told
    assert NOT_WHOLE in server.client.error(rest)
    assert NOT_WHOLE in server.client.error(step)
    server.client.output(server.client.backward(model, 5, [DATUM]))
    server.client.wait(server.client.step(model, 6))
    server.client.output(waiting)


@pytest.mark.usefixtures("_kills")
def test_a_step_before_which_passes_cannot_be_made_again_is_given_up_with_them(server):
    model = server.client.model(server.client.session())
    server.client.output(server.client.backward(model, 1, [DATUM]))
    server.close()
    server.dies_of = TOKENS[-1]  # from now on, also the pass that went well
    server.start()
    step = server.client.step(model, 2)
    server.start_after_deaths(3)

    assert KILLED in server.error(step)
    server.dies_of = MARK
    server.client.output(server.client.backward(model, 3, [DATUM]))
    server.client.wait(server.client.step(model, 4))


@pytest.mark.usefixtures("_kills")
def test_a_pass_before_which_none_was_made_is_given_up_alone(server):
    model = server.client.model(server.client.session())
    deadly = server.client.backward(model, 1, [DEADLY])
    server.start_after_deaths(3)

    assert "dropped" not in server.error(deadly)
    server.client.output(server.client.backward(model, 2, [DATUM]))
    server.client.wait(server.client.step(model, 3))


@pytest.mark.usefixtures("_kills")
def test_no_step_is_made_without_a_first_pass_that_is_given_up(server):
    model = server.client.model(server.client.session())
    deadly = server.client.backward(model, 1, [DEADLY])
    rest = server.client.backward(model, 2, [DATUM])
    step = server.client.step(model, 3)
    server.start_after_deaths(3)

    told = server.error(deadly)
    assert KILLED in told
    assert "The rest of the batch is refused, up to and including its optim_step" in told
    assert NOT_WHOLE in server.client.error(rest)
    assert NOT_WHOLE in server.client.error(step)
    server.client.output(server.client.backward(model, 4, [DATUM]))
    server.client.wait(server.client.step(model, 5))


def test_a_kill_counts_for_what_is_executed_though_the_server_was_told_to_end(server, monkeypatch):
    whole = Kills.note_end

    def before_a_kill(kills, *, executing=None):
        if executing is not None:  # the second note, at the end, would follow the kill
            whole(kills, executing=executing)

    monkeypatch.setattr(Kills, "note_end", before_a_kill)
    model = server.client.model(server.client.session())
    deadly = server.client.backward(model, 1, [DEADLY])
    server.start_after_deaths(3)

    assert KILLED in server.error(deadly)


@pytest.mark.usefixtures("_kills")
def test_two_deaths_are_not_enough(server):
    model = server.client.model(server.client.session())
    request = server.client.backward(model, 1, [DEADLY])
    server.start_after_deaths(1)
    assert server.death.acquire(timeout=30)
    server.close()
    server.dies_of = -1
    server.start()

    server.client.output(request)


def test_a_run_that_a_server_ends_with_is_not_given_up(server):
    model = server.client.model(server.client.session())
    request = server.client.backward(model, 1, [DEADLY])
    server.start_after_deaths(3)
    assert server.death.acquire(timeout=30)
    server.close()
    server.dies_of = -1
    server.start()

    server.client.output(request)
