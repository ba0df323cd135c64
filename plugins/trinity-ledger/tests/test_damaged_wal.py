"""What SQLite would pass over in the -wal file that a killed process left is named."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from trinity.errors import DataError
from trinity_ledger.sqlite_file import refuse_damaged_wal, wal_damage

PAGE, FRAME, HEADER = 4096, 24, 32
NUM_ROWS = 20


@pytest.fixture
def killed(tmp_path):
    """Return the path of a database whose commits stand in its -wal file alone."""
    with closing(sqlite3.connect(tmp_path / "live.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE replies (number INTEGER PRIMARY KEY, text BLOB)")
        for number in range(NUM_ROWS):
            database.execute("INSERT INTO replies VALUES (?, ?)", (number, bytes(6000)))
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"live.db{end}", tmp_path / f"left.db{end}")
    return tmp_path / "left.db"


def wal_of(path):
    return path.with_name(f"{path.name}-wal")


def change(path, place):
    data = bytearray(wal_of(path).read_bytes())
    data[place] ^= 1
    wal_of(path).write_bytes(data)


def num_rows(path):
    with closing(sqlite3.connect(path)) as database:
        try:
            return database.execute("SELECT count(*) FROM replies").fetchone()[0]
        except sqlite3.Error:
            return 0


def test_what_a_kill_left_is_read_whole(killed) -> None:
    refuse_damaged_wal(killed)

    assert num_rows(killed) == NUM_ROWS


@pytest.mark.parametrize(
    ("place", "number"),
    [
        (HEADER - 1, 1),  # the checksum of the header
        (HEADER + FRAME + 100, 1),  # a page
        (HEADER + 2 * (FRAME + PAGE) + 9, 3),  # a salt of a frame
        (HEADER + 2 * (FRAME + PAGE) + 17, 3),  # a checksum of a frame
        (HEADER + 4 * (FRAME + PAGE) + 5, 5),  # how large the database is after the commit
    ],
)
def test_a_changed_bit_that_sqlite_takes_for_the_end_is_named(killed, place, number) -> None:
    change(killed, place)

    with pytest.raises(DataError, match=f"left.db-wal is damaged at frame {number}: ") as error:
        refuse_damaged_wal(killed)

    assert "Restore both files from a copy" in str(error.value)
    assert num_rows(killed) < NUM_ROWS  # unsaid, by SQLite alone


def test_a_changed_bit_anywhere_but_in_the_last_frame_is_found(killed) -> None:
    whole = wal_of(killed).read_bytes()
    dice = random.Random(0)
    for _ in range(100):
        data = bytearray(whole)
        data[dice.randrange(len(data) - FRAME - PAGE)] ^= 1 << dice.randrange(8)
        assert wal_damage(bytes(data)) > 0


def test_a_last_commit_that_does_not_fit_is_logged_and_the_rest_is_used(killed, caplog) -> None:
    change(killed, wal_of(killed).stat().st_size - 1)

    refuse_damaged_wal(killed)

    (line,) = caplog.messages
    assert line.endswith(
        "ends with a commit that a kill cut off, or that is damaged. It is not used."
    )
    assert num_rows(killed) == NUM_ROWS - 1


def test_frames_of_before_behind_the_last_commit_are_no_damage(tmp_path) -> None:
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE replies (text BLOB)")
        for size in (50_000, 10):
            database.execute("INSERT INTO replies VALUES (?)", (bytes(size),))
            if size > 10:
                database.execute("PRAGMA wal_checkpoint(RESTART)")

        assert wal_of(path).stat().st_size > 50_000
        assert wal_damage(wal_of(path).read_bytes()) == 0
