"""A ledger that no run wrote is read within bounds, and what is wrong with it said in one line."""

from __future__ import annotations

import pytest
from trinity_ledger.address import address_of
from trinity_ledger.ledger import Ledger
from trinity_ledger.sqlite import SqliteDatabase
from trinity_studio.view.ledger import read_experiences, read_ledger

from .conftest import a_row, change


@pytest.fixture
def path(tmp_path):
    """Return the file of a ledger."""
    file = tmp_path / "runs.db"
    ledger = Ledger(SqliteDatabase(file), name="ledger", run="r")
    ledger.write([a_row(run, batch=1) for run in range(4)])
    ledger.close()
    return file


def test_a_ledger_of_other_columns_is_a_problem_of_one_line(path) -> None:
    change(path, "ALTER TABLE packet RENAME COLUMN body TO told")

    page = read_experiences(address_of(str(path)), step="", page=0, per_page=9)

    assert page.problem == f"{path} cannot be read as a ledger: no such column: body"


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("experience", "x AS train_step, 1 AS train_place, 1 AS num_tokens, 1 AS reward"),
        ("packet", "x AS id, zeroblob(99999999) AS body"),
        ("task", "SUM(x) AS id, 1 AS batch"),
    ],
)
def test_a_view_in_a_tables_place_is_a_problem_of_one_line(path, table, columns) -> None:
    change(path, f"DROP TABLE {table}")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    change(path, f"CREATE VIEW {table} AS {endless} SELECT {columns} FROM n")

    for page in (
        read_ledger(address_of(str(path))),
        read_experiences(address_of(str(path)), step="", page=0, per_page=9),
    ):
        assert f"cannot be read as a ledger: refusing the ledger {path}" in page.problem
        assert f"{table} is a view, no run writes such a table" in page.problem


def test_a_query_that_takes_too_long_is_a_problem_of_one_line(path, monkeypatch) -> None:
    monkeypatch.setattr("trinity_studio.view.sqlite_file._READ_S", 0.0)
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 30000)"
    columns = "packet, place, uid, run, step, version, num_tokens"
    values = "SELECT x, x, 'another-' || x, 0, 0, 0, 1 FROM n"
    change(path, f"INSERT INTO experience ({columns}) {numbers} {values}")

    page = read_ledger(address_of(str(path)))

    assert page.problem.endswith("a query took more than 0 s, and was ended")


def test_rows_beyond_what_is_read_at_once_are_a_problem_of_one_line(path, monkeypatch) -> None:
    monkeypatch.setattr("trinity_ledger.sqlite_file.READ_BYTES", 1 << 20)
    change(path, "UPDATE packet SET body = zeroblob(2000000)")

    page = read_experiences(address_of(str(path)), step="", page=0, per_page=9)

    assert "one query returned more than 1 MB" in page.problem
