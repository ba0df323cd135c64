"""A packet of a ledger that is not what was written is refused by name, and never trained."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity.common.ports import StorageUse
from trinity.errors import DataError
from trinity_ledger.storage import SqlStorage

AIMS = {
    "tokens": np.array([7411], dtype=np.int32).tobytes(),
    "logprobs": np.array([-0.8125], dtype=np.float32).tobytes(),
    "reward": b'"reward": 0.625',
}


def opened(path, *, owner="one", side="both"):
    config = ExperienceBufferConfig(storage_type="sql", max_retry_times=0)
    return SqlStorage(config, path=path, use=StorageUse(run="a/run", side=side, owner=owner))


def filled(path, **use):
    storage = opened(path, **use)
    storage.write(
        [
            Experience(
                tokens=[1, 2, 7411],
                prompt_length=2,
                logprobs=[-0.8125],
                reward=0.625,
                eid=EID(batch=3, task=task, run=run),
            )
            for task in (0, 1)
            for run in (0, 1)
        ]
    )
    return storage


def do(storage, statement, *values):
    return storage._ledger._database.write(lambda rows: rows.do(statement, *values))


def flip(storage, *, packet, offset, bit):
    body = bytearray(storage._ledger.packets([packet])[packet].body)
    body[offset] ^= 1 << bit
    do(storage, "UPDATE packet SET body = ? WHERE id = ?", bytes(body), packet)


def read(storage):
    storage.read_for(1)
    return storage.read(4, timeout_s=0)


@pytest.mark.parametrize("what", AIMS)
def test_one_flipped_bit_in_a_waiting_packet_is_not_trained(path, what) -> None:
    storage = filled(path)
    offset = storage._ledger.packets([2])[2].body.index(AIMS[what]) + len(AIMS[what]) - 1
    flip(storage, packet=2, offset=offset, bit=0)

    with pytest.raises(DataError) as raised:
        read(storage)

    assert "table packet, row id 2, run a/run, task one:3/1 of explorer one" in str(raised.value)
    assert "(one:3/1/0/0, one:3/1/1/0); none of them was trained" in str(raised.value)
    assert "UPDATE packet SET outcome = 'broken' WHERE id = 2" in str(raised.value)


@pytest.mark.parametrize("seed", range(16))
def test_no_flipped_bit_of_a_packet_is_trained(tmp_path, seed) -> None:
    storage, dice = filled(f"sqlite:///{tmp_path}/ledger.db"), random.Random(seed)
    size = len(storage._ledger.packets([1])[1].body)
    flip(storage, packet=1, offset=dice.randrange(size), bit=dice.randrange(8))

    with pytest.raises(DataError, match=r"packet 1 of the ledger .* is damaged"):
        read(storage)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE packet SET body = (SELECT body FROM packet WHERE id = 1), digest = "
         "(SELECT digest FROM packet WHERE id = 1) WHERE id = 2",
         "it has one:3/0/0/0 at place 0, and row 3 of table experience says one:3/1/0/0"),
        ("UPDATE experience SET place = 7 WHERE id = 3", "it has nothing at place 7"),
        ("UPDATE packet SET digest = NULL WHERE id = 2", "it has no SHA-256"),
        ("UPDATE packet SET body = NULL WHERE id = 2", "its contents were deleted"),
        ("DELETE FROM packet WHERE id = 2", "the row is missing"),
    ],
)  # fmt: skip
def test_a_packet_that_is_not_that_of_its_rows_is_refused(path, damage, said) -> None:
    storage = filled(path)
    do(storage, damage)

    with pytest.raises(DataError, match=said):
        read(storage)


def test_what_a_damaged_packet_tells_a_person_to_do_lets_the_run_go_on(path) -> None:
    storage = filled(path)
    flip(storage, packet=1, offset=60, bit=3)
    with pytest.raises(DataError) as raised:
        read(storage)
    do(storage, str(raised.value).partition('"')[2].partition('"')[0])

    assert [one.eid.uid for one in read(storage)] == ["one:3/1/0/0", "one:3/1/1/0"]


def test_a_ledger_of_a_version_without_digests_is_read_and_said_once(path, caplog) -> None:
    old = filled(path)
    do(old, "ALTER TABLE packet DROP COLUMN digest")
    old.close()
    storage = opened(path)
    storage.write([Experience(tokens=[1, 2], eid=EID(batch=4, task=0, run=0))])

    assert len(read(storage)) == 4
    storage.read_for(2)
    assert len(storage.read(1, timeout_s=0)) == 1
    assert caplog.text.count("wrote packets 1 to 2 of the ledger") == 1
    do(storage, "UPDATE packet SET digest = NULL WHERE id = 3")
    storage.read_for(2)
    with pytest.raises(DataError, match="no SHA-256"):
        storage.read(1, timeout_s=0)


def test_a_ledger_whose_wal_file_is_damaged_is_refused_before_it_is_opened(tmp_path) -> None:
    live, left = tmp_path / "live", tmp_path / "left"
    storage = filled(live / "ledger.db")
    shutil.copytree(live, left)  # as a kill leaves it
    storage.close()
    wal = left / "ledger.db-wal"
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 4
    wal.write_bytes(data)

    with pytest.raises(DataError, match=r"ledger.db-wal is damaged at frame \d+: SQLite would"):
        read(opened(left / "ledger.db"))
