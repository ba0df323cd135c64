"""What a service has stored is shown, and its file is as before."""

from __future__ import annotations

import pytest
from trinity_serve.run_store import SqliteRunStore

from .conftest import a_row


def exchange(number, *, agent="", text="four", **info):
    messages = [
        {"role": "user", "content": "2 + 2 <b>"},
        {"role": "assistant", "content": f"{text} {number}"},
    ]
    return a_row(0, messages=messages, info={"request": str(number), "agent": agent, **info})


@pytest.fixture
def served(built):
    store = SqliteRunStore(built.path / "buffer" / "serve.db", service="s", directory="d")
    first = store.run("<i>mine</i>", owner="0123456789ab", task="sums")
    store.keep(first.number, [exchange(0)], request=0, agent="")
    store.keep(first.number, [exchange(1, continues="0")], request=1, agent="")
    store.reward("<i>mine</i>", 0.75, metrics={"right": 1.0})
    store.run("another", owner="0123456789ab")
    return store


def test_runs_calls_and_rewards_of_a_service_are_shown_while_it_runs_and_after(
    built, served, browse
) -> None:
    page = browse(built.path)
    assert "Service" in page.text()
    for _ in range(2):
        said = page.text("service")
        assert "open 1 rewarded 1" in said
        assert "<i>mine</i> sums rewarded" in said
        assert "2 1 0.75" in said  # calls, rewards, their mean
        assert "0123456789ab" not in said
        html = page.html("service/1")
        assert "four 0" in html
        assert "four 1" in html
        assert "2 + 2 &lt;b&gt;" in html
        assert "&#34;right&#34;: 1.0" in html
        served.close()

    names = {one.name for one in (built.path / "buffer").iterdir()}
    assert names == {"serve.db", "serve.db.lock", "explorer_output.jsonl"}


def test_a_reply_with_a_flipped_bit_that_can_still_be_read_is_said(built, served, browse) -> None:
    ((body,),) = served._db.execute("SELECT experiences FROM exchanges WHERE request = 1")
    changed = body.replace(b"four 1", b"four 2")
    served._db.execute("UPDATE exchanges SET experiences = ? WHERE request = 1", (changed,))
    said = browse(built.path).text("service/1")

    assert changed != body
    assert "1 of 2 exchanges are damaged" in said
    assert "four 0" in said
    assert "four 2" not in said


@pytest.mark.parametrize("body", ["x'00'", "'text'", "10000000000"])
def test_a_run_that_is_not_there_and_a_damaged_call_are_said(built, served, browse, body) -> None:
    served._db.execute(f"UPDATE exchanges SET experiences = {body} WHERE request = 1")
    page = browse(built.path)

    assert "serve.db has no run 9" in page.text("service/9")
    said = page.text("service/1")
    assert "1 of 2 exchanges are damaged" in said
    assert "four 0" in said


def test_a_file_that_is_none_of_a_service_is_said_and_a_run_without_one_too(built, browse) -> None:
    page = browse(built.path)
    assert "Service" not in page.text()
    assert "serves nobody" in page.text("service")
    (built.path / "buffer" / "serve.db").write_bytes(b"no database" * 100)

    assert "serve.db cannot be read as the file of a service" in page.text("service")
    assert "serve.db cannot be read as the file of a service" in page.text("service/1")
