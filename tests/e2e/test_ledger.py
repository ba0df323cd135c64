"""A run whose experiences lie in a ledger is the run that it is with a queue."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
import trinity
from trinity.common.config import load_config
from trinity.errors import DataError
from trinity.monitor.jsonl import read_metrics
from trinity_ledger.sqlite import SqliteDatabase
from trinity_testing.history import read_history

pytestmark = pytest.mark.slow


def in_a_ledger(config):
    buffer = config["buffer"] | {"trainer_input": {"experience_buffer": {"storage_type": "sql"}}}
    return config | {"buffer": buffer}


def lines_of(directory):
    rows = read_metrics(directory / "monitor")
    return [{k: v for k, v in row.items() if "time/" not in k} for row in rows]


def steps_in(directory):
    """Return the ids of each optimizer step as the ledger tells them."""
    query = "SELECT train_step, uid FROM experience ORDER BY train_step, train_place"
    with closing(sqlite3.connect(directory / "buffer/ledger.db")) as database:
        rows = database.execute(query).fetchall()
    return [[uid for step, uid in rows if step == n] for n in sorted({step for step, _ in rows})]


def test_it_trains_what_a_queue_trains_and_says_so(config_dict, write_yaml, run_dir) -> None:
    config_dict["buffer"] |= {"batch_size": 2, "train_batch_size": 6}
    trinity.run(load_config(write_yaml(config_dict | {"name": "queue"})), local=True)
    trinity.run(load_config(write_yaml(in_a_ledger(config_dict))), local=True)

    assert lines_of(run_dir) == lines_of(run_dir.with_name("queue"))
    assert read_history(run_dir) == read_history(run_dir.with_name("queue")) == steps_in(run_dir)


@pytest.mark.ray
@pytest.mark.acceptance
def test_it_trains_the_same_over_ray(config_dict, write_yaml, run_dir) -> None:
    config_dict["buffer"] |= {"batch_size": 2, "train_batch_size": 6}
    config_dict["synchronizer"] = {"sync_interval": 2, "sync_offset": 1}
    config = in_a_ledger(config_dict)
    trinity.run(load_config(write_yaml(config | {"name": "local"})), local=True)
    trinity.run(load_config(write_yaml(config)))

    assert read_history(run_dir) == read_history(run_dir.with_name("local")) == steps_in(run_dir)


def fill_disk(monkeypatch, *, room=2):
    """Let a ledger grow by so many pages of 4 KiB, and no more."""
    connected = SqliteDatabase._connected

    def limited(database):
        connection = connected(database)
        ((used,),) = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {used + room}")
        return connection

    monkeypatch.setattr(SqliteDatabase, "_connected", limited)


@pytest.mark.parametrize(
    "style", ["fully_async", pytest.param("fixed", marks=pytest.mark.acceptance)]
)
def test_a_disk_that_is_full_ends_the_run_and_nothing_is_half_written(
    style, config_dict, write_yaml, run_dir, monkeypatch
) -> None:
    config_dict["buffer"] |= {"batch_size": 2}
    config_dict["synchronizer"] = {"sync_style": style}
    config_dict["trainer"] = {"save_interval": 1}
    config = write_yaml(in_a_ledger(config_dict))
    with monkeypatch.context() as full:
        fill_disk(full)
        with pytest.raises(DataError, match=r"full.*Free space on its disk, then run the same"):
            trinity.run(load_config(config), local=True)
    with closing(sqlite3.connect(run_dir / "buffer/ledger.db")) as ledger:
        sizes = ledger.execute("SELECT COUNT(*) FROM experience GROUP BY packet").fetchall()
        (packets,) = ledger.execute("SELECT COUNT(*) FROM packet").fetchone()

    assert len(sizes) == packets
    assert set(sizes) <= {(4,)}  # whole groups
    trinity.run(load_config(config), local=True)
    trained = [uid for step in read_history(run_dir) for uid in step]
    assert len(trained) == len(set(trained)) == 32
    assert steps_in(run_dir) == read_history(run_dir)
