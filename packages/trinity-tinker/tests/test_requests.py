"""Requests, polls and answers, as clients send and get them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest

TOKENS = [71, 104, 101, 32, 113, 117, 105, 99, 107]


def a_datum(tokens=TOKENS, **fields):
    return {
        "tokens": tokens[:-1],
        "target_tokens": tokens[1:],
        "weights": [1.0] * (len(tokens) - 1),
        **fields,
    }


def logprobs_of(output):
    return [
        np.frombuffer(record.fields["logprobs"].data, dtype="<f4")
        for record in output.loss_fn_outputs
    ]


def test_a_pass_answers_with_the_sum_of_the_loss_and_log_probabilities(client):
    model = client.model(client.session())
    output = client.output(client.backward(model, 1, [a_datum(), a_datum(TOKENS[:4])]))

    (values,) = logprobs_of(output)
    offsets = np.frombuffer(output.loss_fn_outputs[0].fields["logprobs"].offsets, dtype="<i8")
    assert offsets.tolist() == [0, 32, 44]  # bytes: eight tokens, then three
    assert output.loss_fn_outputs[0].num_datums == 2
    assert output.metrics["loss:sum"] == pytest.approx(-float(values.sum()), rel=1e-6)


def test_a_step_lowers_the_loss(client):
    model = client.model(client.session())
    losses = []
    for turn in range(3):
        request = client.backward(model, 2 * turn + 1, [a_datum()])
        client.wait(client.step(model, 2 * turn + 2))
        losses.append(client.output(request).metrics["loss:sum"])

    assert losses[0] > losses[1] > losses[2]


def test_a_packed_body_is_read_as_a_plain_one(client):
    session = client.session()
    losses = [
        client.output(
            client.backward(client.model(session, number), 1, [a_datum()], is_packed=bool(number))
        ).metrics["loss:sum"]
        for number in range(2)
    ]

    assert losses[0] == losses[1]


def test_requests_that_come_in_another_order_are_done_in_that_of_their_numbers(client):
    session = client.session()
    outputs = []
    for number, order in enumerate(([1, 2, 3], [3, 2, 1])):
        model = client.model(session, number)
        made = {}
        for seq in order:
            is_step = seq == 2
            made[seq] = (
                client.step(model, 2) if is_step else client.backward(model, seq, [a_datum()])
            )
        outputs.append([client.output(made[seq]).metrics["loss:sum"] for seq in (1, 3)])

    assert outputs[0] == outputs[1]
    assert outputs[0][0] > outputs[0][1]


def test_a_request_that_is_sent_again_is_the_same_and_done_once(client):
    model = client.model(client.session())
    first = client.backward(model, 1, [a_datum()])
    again = client.backward(model, 1, [a_datum()])
    request = client.http.post(
        "/optim_step", json={"model_id": model, "seq_id": 1, "adam_params": {}}
    )

    assert first == again
    assert request.status_code == 422
    assert "with another body" in request.json()["detail"]


def test_a_session_is_made_once_for_each_call(client):
    body = {"tags": [], "sdk_version": "0.38.0"}
    headers = {"X-Idempotency-Key": "call-1"}
    found = {
        client.http.post("/create_session", json=body, headers=headers).json()["session_id"]
        for _ in range(2)
    }

    assert len(found) == 1
    assert client.session() not in found


def test_a_poll_is_held_until_there_is_a_result_or_a_while_is_over(client):
    model = client.model(client.session())
    late = client.backward(model, 2, [a_datum()])  # waits for the first
    before = time.monotonic()
    answer = client.poll(late).json()
    held_s = time.monotonic() - before
    client.backward(model, 1, [a_datum()])

    assert (answer["type"], answer["request_id"]) == ("try_again", late)
    assert held_s >= 2.0
    assert client.output(late).metrics["loss:sum"] > 0


def test_a_checkpoint_goes_on_as_the_run_does(client):
    session = client.session()
    model = client.model(session)
    client.backward(model, 1, [a_datum()])
    client.step(model, 2)
    body = {"model_id": model, "seq_id": 3, "path": "one"}
    path = client.wait(client.post("/save_weights", body)["request_id"])["path"]
    body = {"session_id": session, "model_seq_id": 1, "path": path, "optimizer": True}
    other = client.wait(client.post("/load_weights", body)["request_id"])["model_id"]

    assert path == f"tinker://{model}/weights/one"
    assert other == f"{session}:train:1"
    losses = []
    for run, seq in ((model, 4), (other, 1)):
        client.output(client.backward(run, seq, [a_datum()]))
        client.wait(client.step(run, seq + 1))
        last = client.backward(run, seq + 2, [a_datum()], forward_only=True)
        losses.append(client.output(last).metrics["loss:sum"])
    assert losses[0] == losses[1]


def test_two_targets_of_a_position_have_two_log_probabilities(client):
    model = client.model(client.session())
    targets = [[one, 5] for one in TOKENS[1:]]
    weights = [[1.0, 0.0]] * len(targets)
    datum = a_datum(target_tokens=targets, weights=weights)
    wide = client.output(client.backward(model, 1, [datum], forward_only=True))
    plain = client.output(client.backward(model, 2, [a_datum()], forward_only=True))

    field = wide.loss_fn_outputs[0].fields["logprobs"]
    assert list(field.trailing_shape) == [2]
    values = np.frombuffer(field.data, dtype="<f4").reshape(-1, 2)
    assert values[:, 0] == pytest.approx(logprobs_of(plain)[0], abs=1e-5)
    assert wide.metrics["loss:sum"] == pytest.approx(plain.metrics["loss:sum"], rel=1e-6)


def test_what_a_key_made_is_there_for_no_other(server, client):
    from trinity_tinker.server import TinkerServer  # noqa: F401 -- the fixture's

    answer = client.http.get("/get_server_capabilities", headers={"X-API-Key": "tml-other"})

    assert answer.status_code == 401
    assert "TINKER_API_KEY" in answer.json()["detail"]


def test_the_models_are_listed_with_their_context(client):
    (model,) = client.http.get("/get_server_capabilities").json()["supported_models"]

    assert model == {
        "model_name": "Qwen/Tiny",
        "max_context_length": 2048,
        "trainable": True,
        "sampleable": True,
    }


@pytest.mark.parametrize("is_step", [False, True])
def test_a_journal_that_cannot_be_written_fails_all_that_waits_instead_of_holding_it(
    client, tmp_path, is_step
):
    model = client.model(client.session())
    client.output(client.backward(model, 1, [a_datum()]))
    with closing(sqlite3.connect(tmp_path / "data/tinker.db")) as journal:
        journal.execute(
            "CREATE TRIGGER full BEFORE UPDATE OF result ON requests "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
        journal.commit()
    request = client.step(model, 2) if is_step else client.backward(model, 2, [a_datum()])
    later = client.backward(model, 3, [a_datum()])

    for one in (request, later):
        answer = client.answer(one).json()
        assert answer["category"] == "server"
        assert "the disk is full" in answer["error"]
