"""A run that keeps a ledger shows it; the file is as before."""

from __future__ import annotations

from trinity.buffer.ledger.ledger import Ledger
from trinity.buffer.ledger.sqlite import SqliteDatabase

from .conftest import a_row


def with_ledger(built):
    path = built.path / "buffer" / "ledger.db"
    database = SqliteDatabase(path)
    ledger = Ledger(database, name="ledger", run="r")
    ledger.write([a_row(run, batch=1) for run in range(4)] + [a_row(0, batch=2)])
    ledger.claim(4, step=1, first=0, may_be_fewer=False)
    return path, ledger


def test_steps_tasks_and_what_waits_are_shown_while_the_run_goes_on_and_after(
    built, browse
) -> None:
    path, ledger = with_ledger(built)
    page = browse(built.path)

    for _ in range(2):
        said = page.text("ledger")
        assert "experiences 5 trained 4 dropped 0 waiting 1" in said
        assert "1 4 16 0.5 0 0" in said  # step, rows, tokens, reward, version, age
        assert "1/0 done 4 4 0.5" in said
        ledger.close()

    files = {one.name for one in path.parent.iterdir()}
    assert files == {"ledger.db", "explorer_output.jsonl"}


def test_a_file_that_is_no_ledger_is_said_and_a_run_without_one_too(built, browse) -> None:
    page = browse(built.path)
    assert "keeps no ledger" in page.text("ledger")
    (built.path / "buffer" / "ledger.db").write_bytes(b"no database" * 100)

    assert "ledger.db cannot be read as a ledger" in page.text("ledger")
