"""Who looks at a ledger that anybody can have made reads stored tables, and so much of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from trinity.common.experience import EID, Experience
from trinity.errors import DataError
from trinity_ledger import sqlite_file
from trinity_ledger.ledger import Ledger
from trinity_ledger.opening import open_database
from trinity_ledger.report import read_ledger
from trinity_ledger.sqlite import SqliteDatabase

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
SIDE = "x AS name, '' AS token, '' AS host, x AS pid, x AS since, x AS beat, x AS version"


@pytest.fixture
def ledger(tmp_path):
    """Return the file of a ledger with two experiences, of which step 1 trained one."""
    path = tmp_path / "ledger.db"
    database = SqliteDatabase(path)
    ledger = Ledger(database, name="")
    ledger.write([Experience(tokens=[1, 2], eid=EID(1, 0, run)) for run in (0, 1)])
    ledger.claim(1, step=1, first=0, may_be_fewer=False)
    database.close()
    return path


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as file:
        for statement in statements:
            file.execute(statement)
        file.commit()
    return path


def looked_at(path):
    with closing(open_database(path, max_retries=0, is_read_only=True)) as database:
        return read_ledger(database, name=str(path))


def test_who_looks_at_a_ledger_leaves_no_file_beside_it(ledger, tmp_path) -> None:
    before = sorted(one.name for one in tmp_path.iterdir())

    assert looked_at(ledger).num_waiting == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == before


def test_who_looks_at_a_ledger_in_use_sees_what_its_log_alone_has(tmp_path) -> None:
    path = tmp_path / "ledger.db"
    with closing(SqliteDatabase(path)) as database:
        Ledger(database, name="").write([Experience(tokens=[1, 2], eid=EID(1, 0, 0))])

        assert looked_at(path).num_waiting == 1


@pytest.mark.parametrize(
    ("table", "statement", "what"),
    [
        (
            "explorer",
            f"CREATE VIEW explorer AS {ENDLESS} {SIDE}, x AS step, '' AS state, '' AS waits_for "
            "FROM n",
            "explorer is a view",
        ),
        ("task", "CREATE VIRTUAL TABLE Task USING fts5(batch)", "task is a virtual table"),
        (
            "packet",
            "CREATE TABLE packet (id INTEGER, outcome AS (zeroblob(999999999)))",
            "packet is partly computed",
        ),
    ],
)
def test_a_ledger_whose_rows_are_computed_is_refused(ledger, table, statement, what) -> None:
    changed(ledger, f"DROP TABLE {table}", statement)

    with pytest.raises(DataError, match=f"refusing the ledger .*ledger.db: .*{what}, no run"):
        looked_at(ledger)


def test_a_table_that_holds_too_much_is_read_no_further(ledger, monkeypatch) -> None:
    monkeypatch.setattr(sqlite_file, "READ_BYTES", 2 << 20)
    values = f"{ENDLESS} x, '', '', x, x, x, x, x, '', zeroblob(40000) FROM n LIMIT 60"
    changed(ledger, f"INSERT INTO explorer {values}")

    with pytest.raises(DataError, match=r"one query returned more than 2 MB\. If a run"):
        looked_at(ledger)


def test_the_views_for_people_are_not_read(ledger) -> None:
    changed(ledger, "DROP VIEW ages", f"CREATE VIEW ages AS {ENDLESS} x AS train_step FROM n")

    told = looked_at(ledger)

    assert (told.trained, told.num_waiting, told.ages) == (1, 1, (0.0, 0.0))
