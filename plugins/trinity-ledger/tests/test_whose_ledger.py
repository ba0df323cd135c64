"""A ledger is one run's, holds nothing else, and gives its places to one who asks."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity.common.ports import StorageUse
from trinity.errors import ConfigError
from trinity_ledger.membership import Member, Membership
from trinity_ledger.opening import open_database
from trinity_ledger.storage import SqlStorage


def opened(path, *, run="a/run", directory=None, side="both", owner=""):
    section = ExperienceBufferConfig(storage_type="sql", max_retry_times=0)
    use = StorageUse(run=run, directory=directory, side=side, owner=owner)
    return SqlStorage(section, path=path, use=use)


def rows(*tasks):
    return [
        Experience(tokens=[1, 2, 3], eid=EID(batch=1, task=task, run=run))
        for task in tasks
        for run in (0, 1)
    ]


def test_a_ledger_belongs_to_one_run(path) -> None:
    opened(path, run="p/one")

    with pytest.raises(
        ConfigError, match=r"belongs to run 'p/one', but this run is 'p/two'.*--set name="
    ):
        opened(path, run="p/two")


@pytest.mark.parametrize("names", [("a", "b"), ("", "b"), ("a", "")])
def test_a_run_directory_of_the_same_name_is_another_run(path, tmp_path, names) -> None:
    one, other = (tmp_path / name if name else None for name in names)
    opened(path, directory=one).write(rows(0))

    with pytest.raises(ConfigError, match=r"of run 'a/run' from another run directory.*remove"):
        opened(path, directory=other)
    assert opened(path, directory=one).available() == 2


def test_a_ledger_that_holds_nothing_is_taken_over(path, tmp_path) -> None:
    opened(path, directory=tmp_path / "a")
    opened(path, directory=tmp_path / "b").write(rows(0))

    with pytest.raises(ConfigError, match="from another run directory"):
        opened(path, directory=tmp_path / "a")


def test_an_explorer_whose_experiences_were_there_already_is_told(path, caplog) -> None:
    storage = opened(path, side="explore", owner="one")
    storage.write(rows(0, 1))
    assert caplog.text == ""
    storage.write(rows(1, 2))

    assert "already has 2 of 4 experiences of explorer one" in caplog.text


def test_a_ledger_of_another_schema_is_refused(path) -> None:
    storage = opened(path)
    storage._ledger._database.write(
        lambda r: r.do("UPDATE run SET value = '0' WHERE key = 'schema'")
    )

    with pytest.raises(ConfigError, match="has schema 0, but this version of Trinity has 1"):
        opened(path)


def test_a_database_of_something_else_is_refused_and_left_as_it_is(path, tmp_path) -> None:
    if path.startswith("postgresql"):
        import psycopg

        with psycopg.connect(path.replace("+psycopg2", "")) as server:
            server.execute("CREATE TABLE notes (id INTEGER)")
    else:
        with closing(sqlite3.connect(tmp_path / "ledger.db")) as file:
            file.execute("CREATE TABLE notes (id INTEGER)")
        before = (tmp_path / "ledger.db").read_bytes()

    with pytest.raises(ConfigError, match=r"is not a ledger: .*\(notes\)\. Use an empty database"):
        opened(path)
    if not path.startswith("postgresql"):
        assert (tmp_path / "ledger.db").read_bytes() == before


def test_places_for_one_step_are_given_to_one_of_many(path) -> None:
    opened(path)
    begin = threading.Barrier(6)

    def ask(name):
        database = open_database(path)
        presence = Membership(database, is_gone=lambda side: False)
        side = Member(name=name, token=name, host="here", pid=1, since=0.0)
        presence.enter(side, is_trainer=False)
        begin.wait()
        given = presence.issue(side, batch=f"{name}:1", num_tasks=2, capacity=2, gives=1)
        database.close()
        return given

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(ask, "abcdef")) == 1
