"""Requests that are small to send, and would take all memory or the whole journal."""

from __future__ import annotations

import sqlite3
import tracemalloc

import numpy as np
import pytest
from trinity_tinker.datums import read_loss_request
from trinity_tinker.refusal import Refused
from trinity_tinker.store import Result, Store
from trinity_tinker.wire import message

NAME = "Qwen/Tiny"
TOKENS = [71, 104, 101, 32, 113]


def add_sparse_datum(request, *, columns):
    """Add four tokens and a target for the first one, in a tensor of four rows."""
    datum = request.data.add()
    datum.model_input.add().encoded_text.tokens = np.arange(4, dtype="<i4").tobytes()
    for name, kind, number in (("target_tokens", "<i8", 2), ("weights", "<f4", 1)):
        tensor = datum.loss_fn_inputs[name]
        tensor.dtype = number
        tensor.shape.extend([4, columns])
        tensor.sparse_csr.values = np.ones(1, dtype=kind).tobytes()
        tensor.sparse_csr.crow_indices = np.array([0, 1, 1, 1, 1], dtype="<i8").tobytes()
        tensor.sparse_csr.col_indices = np.zeros(1, dtype="<i8").tobytes()


def test_sparse_targets_of_all_datums_together_are_bounded():
    request = message("ForwardBackwardRequest")
    request.loss_fn = "cross_entropy"
    for _ in range(2):  # 2**26 cells in 400 bytes
        add_sparse_datum(request, columns=2**23)
    how = {"vocab": 384, "max_length": 8}

    assert len(read_loss_request(request.SerializeToString(), **how).rows) == 2
    add_sparse_datum(request, columns=1)
    with pytest.raises(Refused, match="more than 67108864 cells of target_tokens together"):
        read_loss_request(request.SerializeToString(), **how)


def test_a_pass_that_was_taken_before_is_read_again_whatever_its_cells():
    request = message("ForwardBackwardRequest")
    request.loss_fn = "cross_entropy"
    for columns in (2**24, 1):
        add_sparse_datum(request, columns=columns)

    assert len(read_loss_request(request.SerializeToString(), vocab=384, max_length=None).rows) == 2


@pytest.fixture
def sampling(client):
    made = {"session_id": client.session(), "sampling_session_seq_id": 0, "base_model": NAME}
    return client.post("/create_sampling_session", made)["sampling_session_id"]


def test_log_probabilities_of_other_tokens_are_bounded_all_together(client, sampling):
    """384 for each of 5 tokens and of 126 * 1387: each is below 2**26, their sum is not."""
    params = {"max_tokens": 1387, "stop": []}
    how = {"num_samples": 126, "topk_sample_logprobs": 384, "topk_prompt_logprobs": 384}
    told = client.error(client.sample(sampling, 1, TOKENS, params=params, **how))

    assert "ask for 67110528 log-probabilities; an answer has up to 67108864" in told


def test_an_answer_that_the_journal_cannot_keep_is_told_and_nothing_else_fails(
    client, server, sampling
):
    server._service.store._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 8000)
    told = client.error(client.sample(sampling, 1, TOKENS, topk_prompt_logprobs=384))
    later = client.output(client.sample(sampling, 2, TOKENS), "SampleResponse")
    model = client.model(client.session())

    assert "bytes, which the journal cannot keep: string or blob too big" in told
    assert len(later.sequences) == 1
    assert model.endswith(":train:0")


def test_bodies_of_requests_that_wait_or_are_made_again_are_read_one_by_one(tmp_path):
    """Eight bodies of a MiB wait, and eight are of passes since the last step."""
    store = Store(tmp_path / "tinker.db")
    how = {"owner": "me", "kind": "forward_backward", "body": b"x" * 2**20}
    for seq in range(16):
        store.add_request(scope="a:train:0", seq=seq, **how)
    for request in store.unfinished()[:8]:
        store.finish(request, Result(form="proto", body=b""), keeps_body=True)
    tracemalloc.start()
    waiting = store.unfinished()
    passes = store.gradients_since("a:train:0", seq=-1, before=8)
    polled = [store.owned("requests", request.id, owner="me") for request in waiting]
    sizes = {len(store.body_of(request.id)) for request in (*waiting, *passes)}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    store.close()

    assert (len(waiting), len(passes), sizes) == (8, 8, {2**20})
    assert [row["finished"] for row in polled] == [None] * 8
    assert peak < 3 * 2**20


def test_advantages_whose_sum_is_beyond_float32_leave_a_journal_that_can_be_read(client, server):
    """Their mean is 3e38; SQLite refuses to read the summary of a request with an infinity."""
    tokens = TOKENS[:-1]
    datum = {"tokens": tokens, "target_tokens": TOKENS[1:]}
    datum |= {"logprobs": [60.0] * 4, "advantages": [3e38] * 4}
    model = client.model(client.session())
    client.output(client.backward(model, 1, [datum], loss="importance_sampling"))
    query = "SELECT json_extract(summary, '$.advantage') AS mean FROM requests WHERE scope = ?"
    found = [row["mean"] for row in server._service.store.rows(query, model)]

    assert found == [None, pytest.approx(3e38)]


def test_a_request_is_done_though_what_is_old_cannot_be_dropped(client, server, monkeypatch):
    model, expiry = client.model(client.session()), server._service._expiry
    body = {"model_id": model, "seq_id": 1}

    def fails(**times):
        raise sqlite3.OperationalError("malformed JSON")

    with monkeypatch.context() as otherwise:
        otherwise.setattr(server._service.store, "forget_results", fails)
        otherwise.setattr(expiry, "_done_at", -1e9)
        assert client.http.post("/save_weights", json=body).status_code == 500
    again = client.post("/save_weights", body)["request_id"]  # as the SDK does
    done = client.http.post("/retrieve_future", json={"request_id": again}).json()

    assert done["path"] == f"tinker://{model}/weights/seq-1"
