"""A ledger knows the run directory that it belongs to, and all sides of a run name the same."""

from __future__ import annotations

import pytest
from trinity.common.config import ExperienceBufferConfig
from trinity.common.ports import StorageUse
from trinity.errors import ConfigError
from trinity_ledger.place import path_of
from trinity_ledger.sqlite import SqliteDatabase
from trinity_ledger.storage import SqlStorage


def opened(folder, *, run="p/name", path=None):
    use = StorageUse(run=run, directory=folder)
    return SqlStorage(ExperienceBufferConfig(storage_type="sql", path=path), use=use)


def id_in(ledger):
    query = "SELECT value FROM run WHERE key = 'id'"
    return SqliteDatabase(ledger).read(lambda rows: rows.all(query))


def test_a_ledger_without_a_path_lies_in_the_run_directory_and_has_its_id(tmp_path) -> None:
    opened(tmp_path / "one").close()
    opened(tmp_path / "one").close()  # the other side, or a later run of the same command
    opened(tmp_path / "two").close()

    ids = [(tmp_path / name / "ledger.id").read_text() for name in ("one", "two")]
    assert ids[0] != ids[1]
    assert [id_in(tmp_path / name / "ledger.db") for name in ("one", "two")] == [
        [(one,)] for one in ids
    ]


def test_a_path_that_is_written_wins(tmp_path) -> None:
    use = StorageUse(directory=tmp_path / "one")

    assert path_of("sqlite:///run.db", use=use) == "sqlite:///run.db"
    assert path_of(None, use=use) == str(tmp_path / "one/ledger.db")


def test_an_id_that_a_kill_left_empty_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("trinity_ledger.place._WRITTEN_S", 0.1)
    (tmp_path / "ledger.id").write_text("")

    with pytest.raises(ConfigError, match=r"ledger.id is empty: .* Remove it, then run the same"):
        opened(tmp_path)


def test_another_run_s_ledger_is_named_without_its_password(tmp_path, monkeypatch) -> None:
    database = SqliteDatabase(tmp_path / "other.db")
    opened(tmp_path, run="another", path=str(tmp_path / "other.db"))
    monkeypatch.setattr("trinity_ledger.storage.database_of", lambda *_, **__: database)

    with pytest.raises(
        ConfigError, match=r"postgresql://me:\*\*\*@db/runs belongs to run 'another'"
    ):
        opened(tmp_path, run="p/run", path="postgresql://me:secret@db/runs")
