"""`trinity view` of a server's folder: runs, requests, losses, checkpoints and errors."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from html import unescape

import pytest
from starlette.testclient import TestClient
from trinity.cli.main import app
from trinity_studio.view.folder_views import find_folders, folder_views
from trinity_studio.view.server import app_of
from trinity_tinker import journal_pages
from trinity_tinker.store import Request, Result, Store
from typer.testing import CliRunner

TOKENS = [71, 104, 101, 32, 113]
DATUM = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:]}
SUPERVISED = {**DATUM, "weights": [1.0] * 4}
PAGE = journal_pages._PAGE
SAMPLED = {**DATUM, "logprobs": [-1.0] * 4, "advantages": [0.0, 0.0, 1.0, 2.0]}


@pytest.fixture
def read(tmp_path):
    """Return a function that gives what a person reads of a page."""

    def read(path=""):
        folders = find_folders([tmp_path], folder_views())
        shown = app_of(list, token="t", folders=folders)
        answer = TestClient(shown, base_url="http://127.0.0.1:8502").get(f"/t{path}")
        assert answer.status_code == 200, answer.text
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())

    return read


def test_every_request_of_a_client_is_shown(client, read):
    session = client.session()
    model = client.model(session)
    client.output(client.backward(model, 1, [SUPERVISED]))
    loss = client.output(client.backward(model, 2, [SAMPLED], loss="ppo")).metrics["loss:sum"]
    client.wait(client.step(model, 3))
    failed = client.error(client.backward(model, 4, [SUPERVISED], loss="gspo"))
    body = {"model_id": model, "seq_id": 5, "sampling_session_seq_id": 0}
    sampler = client.wait(client.post("/save_weights_for_sampler", body)["request_id"])
    client.output(client.sample(sampler["sampling_session_id"], 1, TOKENS), "SampleResponse")
    client.backward(model, 7, [SUPERVISED])  # number 6 is missing
    assert "Tinker server: data" in read("/")

    said = read("/folder/0")
    assert "runs 1 requests 8 waiting 1 failed 1 checkpoints 1" in said
    assert f"{model} Qwen/Tiny 4 attn, mlp, unembed 7 1" in said
    assert "forward_backward 4 1 1" in said
    assert f"tinker://{model}/sampler_weights/sampling-session-0" in said
    assert failed in said
    said = read(f"/folder/0/requests?scope={model}")
    assert f"{loss:.5g} loss_fn ppo, datums 1, tokens 4, advantage 0.75" in said
    assert "5 save_weights_for_sampler done" in said
    assert "rank 4" in said
    assert "7 forward_backward waiting" in said
    assert "samples 1, prompt 5, tokens 4" in read("/folder/0/requests?kind=sample")
    assert "1 requests" in read("/folder/0/requests?state=failed")


def test_pages_of_many_requests_are_read_from_an_index_alone(tmp_path, read):
    store = Store(tmp_path / "tinker.db")
    with store.writing():
        for seq in range(1050):
            name, _ = store.add_request(
                owner="me", scope="a:train:0", seq=seq, kind="forward_backward", body=b"x" * 9000
            )
            request = Request(id=name, owner="", scope="", seq=0, kind="")
            store.finish(
                request,
                Result(form="proto", body=b"y", summary={"loss": seq, "tokens": 2}),
                keeps_body=True,
            )
    plans = {
        "COVERING INDEX listed": (PAGE.format(index="listed", where="TRUE"), 0),
        "INDEX failed": (journal_pages._LATEST_ERRORS, 0),
        "INDEX of_scope": (journal_pages._LOSSES, "a"),
    }
    for used, (query, value) in plans.items():
        steps = [row[3] for row in store.rows(f"EXPLAIN QUERY PLAN {query}", value)]
        assert used in steps[0], steps
        assert len(steps) == 1  # nothing is sorted
    store.close()

    assert "1,050 requests page 1 of 11" in read("/folder/0/requests")
    assert "page 11 of 11" in read("/folder/0/requests?page=10")
    assert "1,050 requests" in read("/folder/0/requests?kind=forward_backward&state=done")
    assert "0 requests" in read("/folder/0/requests?scope=b")
    assert "forward_backward 1,050 0 0" in read("/folder/0")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("DROP INDEX failed", "older version; start trinity tinker serve on it once"),
        ("DROP TABLE checkpoints", "no such table: checkpoints"),
        ("UPDATE models SET adapter = 'x'", "Expecting value"),
        ("DROP TABLE counts; CREATE VIEW counts AS SELECT * FROM models", "counts"),
    ],
)
def test_a_journal_that_cannot_be_read_says_so(tmp_path, read, spoil, told):
    Store(tmp_path / "tinker.db").close()
    with closing(sqlite3.connect(tmp_path / "tinker.db")) as journal:
        journal.execute(
            "INSERT INTO models (id, owner, session, made, used) VALUES ('<b>', '', '', 0, 0)"
        )
        journal.commit()
        journal.executescript(spoil)

    assert told in read("/folder/0")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_journal_of_an_earlier_version_is_taken_over(tmp_path, read, version):
    store = Store(tmp_path / "tinker.db")
    for seq in range(3):
        store.add_request(owner="me", scope="a:train:0", seq=seq, kind="optim_step", body=b"")
    first, *others = store.unfinished()
    store.finish(first, Result(form="error", body=b"{}"), keeps_body=False)
    since = {
        4: ("TRIGGER counts_new", "TRIGGER counts_finished", "TABLE counts", "INDEX failed",
            "INDEX of_scope"),
        3: ("INDEX unfetched", "TABLE bases"),
        2: ("INDEX listed",),
    }  # fmt: skip
    for dropped in (one for made, names in since.items() if made > version for one in names):
        store.write(f"DROP {dropped}")
    store.write("ALTER TABLE requests DROP COLUMN kills")
    if version == 1:
        store.write("ALTER TABLE requests DROP COLUMN summary")
    store.write(f"PRAGMA user_version = {version}")
    store.close()
    old = read("/folder/0")
    store = Store(tmp_path / "tinker.db")
    assert store.unfinished() == others
    store.finish(others[0], Result(form="json", body=b"{}"), keeps_body=False)
    store.close()

    assert ("older version; start trinity tinker serve on it once" in old) == (version < 4)
    assert "runs 0 requests 3 waiting 1 failed 1" in read("/folder/0")
    assert "1 requests" in read("/folder/0/requests?state=waiting&kind=optim_step")


def test_a_note_on_the_folder_of_a_server_is_refused(tmp_path):
    Store(tmp_path / "tinker.db").close()
    ended = CliRunner().invoke(app, ["view", str(tmp_path), "--note", "a note"])

    assert ended.exit_code != 0
    assert "--tag, --note and --export are for runs" in str(ended.exception) + ended.output
