"""Runs on one server: each is as alone, whatever others do between its requests."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from trinity_tinker.gradients import GradientTrainer
from trinity_tinker.server import TinkerServer

KEY = "tml-of-a-test"
RANKS = {0: 4, 1: 16}


def a_datum(number: int):
    tokens = [10 + (7 * number + place) % 300 for place in range(10)]
    return {"tokens": tokens[:-1], "target_tokens": tokens[1:], "weights": [1.0] * 9}


def trained(client, runs: dict[int, int]) -> dict[int, bytes]:
    """Train runs in turns; return the bytes of each one's last log-probabilities."""
    session = client.session()
    models = {number: client.model(session, number, rank=rank) for number, rank in runs.items()}
    for turn in range(4):
        for part in (1, 2):
            for number, model in models.items():
                client.backward(model, 3 * turn + part, [a_datum(10 * number + turn + part)])
        for model in models.values():
            client.step(model, 3 * turn + 3)
    last = {
        number: client.backward(model, 13, [a_datum(0), a_datum(5)], forward_only=True)
        for number, model in models.items()
    }
    return {
        number: client.output(request).loss_fn_outputs[0].fields["logprobs"].data
        for number, request in last.items()
    }


@pytest.mark.parametrize("max_models", [8, pytest.param(1, marks=pytest.mark.acceptance)])
def test_ranks_4_and_16_in_turns_equal_each_run_alone_bit_for_bit(
    base, tmp_path, make_client, max_models
):
    """With room for one run in memory, each goes to its state and back at every turn."""
    found = []
    for number, runs in enumerate(({0: 4}, {1: 16}, RANKS)):
        server = TinkerServer([base], tmp_path / str(number), keys=[KEY], max_models=max_models)
        found.append(trained(make_client(server.base_url), runs))
        server.close()

    alone = found[0] | found[1]
    assert found[2] == alone
    assert np.frombuffer(alone[0], "<f4").tolist() != np.frombuffer(alone[1], "<f4").tolist()


def test_a_server_that_is_started_again_goes_on_where_it_was(base, tmp_path, make_client):
    found = []
    for parts in ((), (2, 4)):
        folder = tmp_path / str(len(parts))
        server = TinkerServer([base], folder, keys=[KEY])
        client = make_client(server.base_url)
        model = client.model(client.session())
        for seq in range(1, 7):
            is_step = seq % 3 == 0
            request = (
                client.step(model, seq) if is_step else client.backward(model, seq, [a_datum(seq)])
            )
            if seq in parts:  # between passes: their gradients are in the journal alone
                server.close()
                server = TinkerServer([base], folder, keys=[KEY])
                client = make_client(server.base_url)
            client.answer(request)
        last = client.backward(model, 7, [a_datum(0)], forward_only=True)
        found.append(client.output(last).SerializeToString(deterministic=True))
        server.close()

    assert found[0] == found[1]


@pytest.fixture
def made(monkeypatch):
    """Return the runs whose passes were made, one by one."""
    found, whole = [], GradientTrainer.backward

    def noting(trainer, run, *given, **how):
        found.append(run)
        return whole(trainer, run, *given, **how)

    monkeypatch.setattr(GradientTrainer, "backward", noting)
    return found


def test_more_runs_than_fit_in_memory_do_not_make_their_passes_again(
    base, tmp_path, make_client, made
):
    server = TinkerServer([base], tmp_path / "data", keys=[KEY], max_models=2)
    client = make_client(server.base_url)
    session, all_sent = client.session(), threading.Event()
    models = [client.model(session, number) for number in range(3)]
    server._service._scheduler.post(all_sent.wait)
    for model in models:
        for seq in range(1, 5):
            client.backward(model, seq, [a_datum(seq)])
    steps = [client.step(model, 5) for model in models]
    all_sent.set()
    for step in steps:
        client.wait(step)
    server.close()

    first, second, third = models
    assert made == [first, second] * 4 + [third] * 4


def test_a_run_that_has_to_be_loaded_waits_for_so_many_passes_of_others_only(
    base, tmp_path, make_client, made
):
    server = TinkerServer([base], tmp_path / "data", keys=[KEY], max_models=1)
    client = make_client(server.base_url)
    session, all_sent = client.session(), threading.Event()
    busy, other = (client.model(session, number) for number in range(2))
    server._service._scheduler.post(all_sent.wait)
    for seq in range(1, 41):
        client.backward(busy, seq, [a_datum(seq)])
    late = client.backward(other, 1, [a_datum(0)])
    all_sent.set()
    client.output(late)
    server.close()

    assert made[:34] == [busy] * 33 + [other]
