"""What a service knows its database by."""

from __future__ import annotations

import pytest
from trinity.errors import DataError
from trinity_serve.run_mode import _identity
from trinity_serve.run_store import SqliteRunStore


def test_a_run_directory_has_one_identity_wherever_it_is_moved(tmp_path) -> None:
    own = _identity(tmp_path / "a" / "buffer" / "serve.id")
    (tmp_path / "a").rename(tmp_path / "b")

    assert _identity(tmp_path / "b" / "buffer" / "serve.id") == own
    assert _identity(tmp_path / "a" / "buffer" / "serve.id") != own


def test_two_run_directories_do_not_share_a_database(tmp_path) -> None:
    ids = [_identity(tmp_path / name / "serve.id") for name in ("a", "b")]
    SqliteRunStore(tmp_path / "serve.db", service=ids[0], directory="runs/a").close()

    with pytest.raises(DataError, match="another service, with the run directory runs/a"):
        SqliteRunStore(tmp_path / "serve.db", service=ids[1], directory="runs/b")


def test_an_identity_that_cannot_be_written_is_told(tmp_path) -> None:
    (tmp_path / "buffer").write_text("no folder")

    with pytest.raises(DataError, match=r"serve\.id cannot be used: .*run the same command"):
        _identity(tmp_path / "buffer" / "serve.id")
