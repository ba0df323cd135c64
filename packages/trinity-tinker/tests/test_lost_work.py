"""Passes and steps that cannot be made, or made again; the run goes on with what it has."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from trinity.errors import DataError
from trinity_tinker import run_states
from trinity_tinker.base_model import BaseModel
from trinity_tinker.server import TinkerServer

NAME, KEY = "Qwen/Tiny", "tml-of-a-test"
TOKENS = [71, 104, 101, 32, 113]
DATUM = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:], "weights": [1.0] * 4}


def loss_of(client, model, seq):
    request = client.backward(model, seq, [DATUM], forward_only=True)
    return client.output(request).metrics["loss:sum"]


def test_a_step_that_would_make_a_weight_no_number_is_refused_and_can_be_made_otherwise(client):
    session, losses = client.session(), []
    for number, has_broken in enumerate((False, True)):
        model = client.model(session, number)
        client.output(client.backward(model, 1, [DATUM]))
        if has_broken:
            told = client.error(client.step(model, 2, eps=0.0))
        client.wait(client.step(model, 2 + has_broken))
        losses.append(loss_of(client, model, 3 + has_broken))

    assert "a weight would not be a finite number after this step" in told
    assert losses[0] == losses[1]


def test_a_pass_whose_gradient_overflows_is_refused_and_the_run_goes_on(client):
    model = client.model(client.session())
    before = loss_of(client, model, 1)
    huge = {**DATUM, "weights": [1e25] * 4}  # finite gradients, whose squares are not
    told = client.error(client.backward(model, 2, [huge]))
    refused = client.error(client.step(model, 3))
    client.output(client.backward(model, 4, [DATUM]))
    client.wait(client.step(model, 5))

    assert "the norm of the gradients inf; nothing changed" in told
    assert "there are none since the last one" in refused
    assert loss_of(client, model, 6) < before


def test_passes_are_made_again_though_the_server_takes_shorter_texts_by_now(
    base, models, tmp_path, make_client
):
    shorter = BaseModel(NAME, str(models / NAME), max_length=3)
    losses = []
    for number, later in enumerate((base, shorter)):
        data = tmp_path / str(number)
        server = TinkerServer([base], data, keys=[KEY])
        client = make_client(server.base_url)
        model = client.model(client.session())
        client.output(client.backward(model, 1, [DATUM]))  # four tokens
        server.close()
        server = TinkerServer([later], data, keys=[KEY])
        client = make_client(server.base_url)
        if later is shorter:
            told = client.error(client.backward(model, 2, [DATUM]))
        client.wait(client.step(model, 2 + number))
        server.close()
        server = TinkerServer([base], data, keys=[KEY])
        losses.append(loss_of(make_client(server.base_url), model, 3 + number))
        server.close()

    assert "datum 0 has 4 tokens; the context of the model is 3" in told
    assert losses[0] == losses[1]


def test_passes_that_cannot_be_made_again_are_told_and_dropped_and_the_run_goes_on(
    base, tmp_path, make_client, monkeypatch
):
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    client = make_client(server.base_url)
    model = client.model(client.session())
    client.output(client.backward(model, 1, [DATUM]))
    server.close()

    def fails(*given, **how):
        raise DataError("the loss is nan")

    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    client = make_client(server.base_url)
    with monkeypatch.context() as otherwise:
        otherwise.setattr(run_states, "backward", fails)
        told = client.error(client.step(model, 2))
    refused = client.error(client.step(model, 3))
    client.output(client.backward(model, 4, [DATUM]))
    client.wait(client.step(model, 5))
    server.close()

    assert f"passes of {model} since its last optim_step cannot be made again, so their" in told
    assert "the loss is nan" in told
    assert "there are none since the last one" in refused


@pytest.fixture
def start(base, tmp_path, make_client):
    """Return a function that ends the server and starts it again; its client."""
    servers = []

    def again():
        for server in servers[-1:]:
            server.close()
        servers.append(TinkerServer([base], tmp_path / "again", keys=[KEY]))
        return make_client(servers[-1].base_url)

    yield again
    servers[-1].close()


def cannot(*given, **how):
    raise DataError("the loss is nan")


def test_no_step_is_made_with_the_part_of_a_batch_that_is_left_of_it(start, monkeypatch):
    client = start()
    session = client.session()
    model, other = client.model(session), client.model(session, 1)
    client.output(client.backward(model, 1, [DATUM]))
    client.error(client.step(model, 2, beta1=1.0))  # refused: the batch goes on
    client = start()
    with monkeypatch.context() as otherwise:
        otherwise.setattr(run_states, "backward", cannot)
        told = [client.error(client.backward(model, 3, [DATUM]))]
    told.append(client.error(client.backward(model, 4, [DATUM])))
    loss_of(client, model, 5)
    client = start()
    told.append(client.error(client.backward(model, 6, [DATUM])))
    told.append(client.error(client.step(model, 7)))
    losses = []
    for run, seq in ((other, 1), (model, 8)):
        client.output(client.backward(run, seq, [DATUM]))
        client.wait(client.step(run, seq + 1))
        losses.append(loss_of(client, run, seq + 2))

    assert "is refused, up to and including its optim_step" in told[0]
    assert told[1:] == [
        f"{kind} {seq} of {model} was not executed: passes of its batch could not be made again, "
        f"as an earlier error says. The batch is refused up to and including its optim_step; send "
        f"the whole batch again after it."
        for kind, seq in (("forward_backward", 4), ("forward_backward", 6), ("optim_step", 7))
    ]
    assert losses[0] == losses[1]


def test_a_run_goes_on_whose_journal_has_an_infinite_mean_of_an_earlier_version(start, tmp_path):
    """SQLite takes no Infinity for JSON; passes without a step are read at the next start."""
    client, losses = start(), []
    session = client.session()
    model, other = client.model(session), client.model(session, 1)
    client.output(client.backward(other, 1, [DATUM]))
    client.output(client.backward(model, 1, [DATUM]))
    client = start()
    with closing(sqlite3.connect(tmp_path / "again" / "tinker.db")) as file, file:
        written = json.dumps({"loss": 2.0, "tokens": 4, "advantage": float("-inf")})
        values = (written, model)
        file.execute("UPDATE requests SET summary = ? WHERE scope = ? AND seq = 1", values)
    client = start()
    for run in (other, model):
        client.wait(client.step(run, 2))
        losses.append(loss_of(client, run, 3))
    with closing(sqlite3.connect(tmp_path / "again" / "tinker.db")) as file:
        query = "SELECT summary FROM requests WHERE scope = ? AND seq = 1"
        kept = json.loads(file.execute(query, (model,)).fetchone()[0])

    assert losses[0] == losses[1]
    assert kept == {"loss": 2.0, "tokens": 4, "advantage": None}


def test_a_loaded_checkpoint_ends_a_batch_that_lost_passes(start, monkeypatch):
    client = start()
    model = client.model(client.session())
    body = {"model_id": model, "seq_id": 1}
    path = client.wait(client.post("/save_weights", body)["request_id"])["path"]
    client.output(client.backward(model, 2, [DATUM]))
    client = start()
    with monkeypatch.context() as otherwise:
        otherwise.setattr(run_states, "backward", cannot)
        client.error(client.backward(model, 3, [DATUM]))
    client.error(client.backward(model, 4, [DATUM]))
    body = {"model_id": model, "seq_id": 5, "path": path, "optimizer": True}
    client.wait(client.post("/load_weights", body)["request_id"])
    client.output(client.backward(model, 6, [DATUM]))
    client.wait(client.step(model, 7))
