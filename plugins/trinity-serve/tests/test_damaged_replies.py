"""A reply or reward of a service that the disk did not keep is refused by name, never trained."""

from __future__ import annotations

import random
import shutil
import sqlite3

import pytest
from trinity.common.experience import EID, Experience
from trinity.errors import DataError
from trinity_serve.ports import DamagedReplyError
from trinity_serve.run_store import SqliteRunStore


@pytest.fixture
def store(tmp_path):
    store = SqliteRunStore(tmp_path / "serve.db")
    yield store
    store.close()


def rewarded(store, *names: str) -> None:
    for name in names:
        number = store.run(name, task="sum").number
        for request in (0, 1):
            reply = Experience(
                tokens=[1, 2, 30 + request],
                prompt_length=2,
                logprobs=[-0.5],
                info={"agent": "", "model_version": 3},
                eid=EID(step=request),
            )
            store.keep(number, [reply], request=request, agent="")
        store.reward(name, 0.5, metrics={"turns": 2.0})


def flip(store, *, run: int, offset: int, bit: int) -> None:
    of = "WHERE run = ? AND request = 1"
    ((body,),) = store._db.execute(f"SELECT experiences FROM exchanges {of}", (run,)).fetchall()
    changed = bytearray(body)
    changed[offset % len(body)] ^= 1 << bit
    store._db.execute(f"UPDATE exchanges SET experiences = ? {of}", (bytes(changed), run))


@pytest.mark.parametrize("seed", range(16))
def test_no_flipped_bit_of_a_reply_is_committed(store, seed) -> None:
    dice = random.Random(seed)
    rewarded(store, "a", "b")
    flip(store, run=2, offset=dice.randrange(1 << 16), bit=dice.randrange(8))

    with pytest.raises(DamagedReplyError) as raised:
        store.commit()

    where = "reply 1 of run 'b' of task 'sum' (table exchanges, run 2, request 1)"
    assert where in str(raised.value)
    assert "Nothing was committed" in str(raised.value)
    assert store.due() == []
    assert store.commit() == (1, 2)  # what it says of the rest
    assert [run.name for run in store.due()] == ["a"]
    assert store.counts()["set_aside"] == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rewards SET reward = 0.75",
        "UPDATE rewards SET metrics = '{\"turns\": 3.0}'",
        "UPDATE runs SET task = 'sun'",
        "DELETE FROM exchanges WHERE request = 1",
        "UPDATE exchanges SET request = 7 WHERE request = 1",
        "UPDATE exchanges SET digest = NULL WHERE request = 1",
        "UPDATE exchanges SET experiences = (SELECT experiences FROM exchanges WHERE request = 0)",
        "UPDATE rewards SET run = 9",
    ],
)
def test_a_reward_whose_run_or_replies_are_others_is_not_committed(store, damage) -> None:
    rewarded(store, "a")
    store._db.execute(damage)

    with pytest.raises(DamagedReplyError, match="Nothing was committed"):
        store.commit()


def test_what_is_damaged_after_its_commit_ends_the_service_once_and_is_set_aside_then(
    store, caplog
) -> None:
    rewarded(store, "a", "b")
    store.commit()
    flip(store, run=1, offset=100, bit=2)

    with pytest.raises(DamagedReplyError, match=r"serve.db is damaged: reply 1 of run 'a'"):
        store.due()
    assert [run.name for run in store.due()] == ["b"]
    assert "set aside, and the rest is trained" in caplog.text


def test_replies_of_an_earlier_version_get_their_digests_and_that_is_said_once(
    tmp_path, caplog
) -> None:
    path = tmp_path / "old.db"
    store = SqliteRunStore(path)
    rewarded(store, "a")
    store.close()
    with sqlite3.connect(path) as old:
        old.execute("ALTER TABLE exchanges DROP COLUMN digest")
        old.execute("ALTER TABLE rewards DROP COLUMN digest")
        old.execute("DROP TABLE writes")
        old.execute("PRAGMA user_version = 4")
    old.close()

    for _ in range(2):
        store = SqliteRunStore(path)
        store.close()
    assert caplog.text.count("stored 2 replies in") == 1
    store = SqliteRunStore(path)
    assert store.commit() == (1, 2)
    store.close()


def test_a_service_whose_wal_file_is_damaged_does_not_start(store, tmp_path) -> None:
    rewarded(store, "a", "b")
    left = tmp_path / "left"
    left.mkdir()
    for name in ("serve.db", "serve.db-wal"):  # as a kill leaves them
        shutil.copy(tmp_path / name, left / name)
    wal = left / "serve.db-wal"
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 4
    wal.write_bytes(data)

    with pytest.raises(DataError, match=r"serve.db-wal is damaged at frame \d+: SQLite would"):
        SqliteRunStore(left / "serve.db")


@pytest.mark.parametrize(("is_kept", "num_lost"), [(True, 0), (False, 8)])
def test_a_service_says_how_many_of_its_last_changes_went_with_a_wal_file(
    store, tmp_path, caplog, is_kept, num_lost
) -> None:
    rewarded(store, "a", "b")  # each: it begins, two replies, a reward
    left = tmp_path / "left"
    left.mkdir()
    for name in ("serve.db", "serve.db.lock", *(["serve.db-wal"] if is_kept else [])):
        shutil.copy(tmp_path / name, left / name)

    counts = []
    for _ in range(2):  # it is said once
        again = SqliteRunStore(left / "serve.db")
        counts.append(again.commit())
        again.close()

    assert counts == [(2, 4) if is_kept else (0, 0), (0, 0)]

    told = [one for one in caplog.messages if "changes that were stored in it" in one]
    assert len(told) == bool(num_lost)
    assert not num_lost or f"lacks the last {num_lost} changes" in told[0]


@pytest.mark.parametrize("damage", [b"9", b"x", b""])
def test_a_damaged_count_beside_the_file_of_a_service_tells_of_no_loss(
    store, tmp_path, caplog, damage
) -> None:
    rewarded(store, "a")
    store.close()
    lock = tmp_path / "serve.db.lock"
    note = lock.read_bytes()
    lock.write_bytes(damage and damage + note[1:])

    again = SqliteRunStore(tmp_path / "serve.db")

    assert again.commit() == (1, 2)
    again.close()
    assert "changes that were stored in it" not in caplog.text
    assert len(lock.read_bytes()) == len(note)
