"""How a run stands can be told from its files, of a dead run too."""

from __future__ import annotations

import json

import pytest
import yaml
from trinity.buffer.ledger.ledger import Ledger
from trinity.buffer.ledger.presence import Presence, Side
from trinity.buffer.ledger.sqlite import SqliteDatabase
from trinity.cli.status import status
from trinity.common.experience import EID, Experience
from trinity.errors import ConfigError, DataError
from trinity.runtime.record.lock import run_lock
from trinity.runtime.record.rundir import RunDir


@pytest.fixture
def run_dir(tmp_path):
    """Return a function that makes a run directory as a run leaves it."""

    def make(*, mode="both", storage="queue", ledger=None, **given):
        rundir = RunDir(tmp_path / "run")
        rundir.create()
        values = {
            "status": "running", "stage": "", "mode": mode, "asked": [1, None, None],
            "explore_steps": 0, "train_steps": 0, "trained_experiences": 0, "total_steps": 4,
            "seconds": 1.0, "first_evaluation": {}, "evaluation": {}, "buffer": {}, "error": "",
        }  # fmt: skip
        rundir.write_status(values | given, mode=mode)
        rows = {"storage_type": storage, "path": ledger}
        buffer = {"trainer_input": {"experience_buffer": rows}}
        (rundir.path / "config.yaml").write_text(yaml.safe_dump({"buffer": buffer}))
        rundir.monitor.mkdir()
        rows = [
            {"step": 3, "role": "explorer", "rollout/failed_runs": 1.0},
            {"step": 2, "role": "trainer", "time/train_s": 0.5, "age/max": 2.0},
        ]
        (rundir.monitor / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        return rundir.path

    return make


def test_a_run_that_was_killed_is_told_as_lost(run_dir, capsys) -> None:
    status(run_dir())

    said = capsys.readouterr().out
    assert "run: lost, explore step 3, train step 2 (no living process here, last metrics" in said
    assert "time/train_s 0.5  age/max 2" in said
    assert "last checkpoint: none" in said


def test_a_living_run_is_told_with_its_process(run_dir, capsys) -> None:
    directory = run_dir()
    with run_lock(directory, say=print):
        status(directory)

    assert "run: running, explore step 3, train step 2 (process" in capsys.readouterr().out


def test_a_failed_run_says_why(run_dir, capsys) -> None:
    status(run_dir(status="failed", train_steps=7, error="DataError: no room"))

    said = capsys.readouterr().out
    assert "run: failed, explore step 0, train step 7" in said
    assert "DataError: no room" in said


def test_a_ledger_tells_of_both_sides(run_dir, capsys) -> None:
    directory = run_dir(mode="train", storage="sql")
    database = SqliteDatabase(directory / "buffer/ledger.db")
    ledger = Ledger(database, name="")
    presence = Presence(database, is_gone=lambda side: False)
    side = Side(name="one", token="a", host="far", pid=7, since=1.0, step=3, version=1)
    presence.enter(side, is_trainer=False)
    trainer = Side(
        name="trainer", token="b", host="far", pid=8, since=1.0, step=2, waits_for="8 experiences"
    )
    presence.enter(trainer, is_trainer=True)
    rows = [Experience(tokens=[1, 2], eid=EID("one:1", 0, run)) for run in (0, 1)]
    ledger.write(rows)
    ledger.claim(1, step=2, first=0, may_be_fewer=False)
    presence.issue(side, batch="one:4", num_tasks=1, capacity=9, gives=2)

    status(directory)

    said = capsys.readouterr().out
    assert "ledger.db: train step 2, 1 wait" in said
    assert (
        "trainer: working, step 2, weights of version 0, waits for 8 experiences (process 8" in said
    )
    assert "one: working, step 3, weights of version 1 (process 7 on far" in said
    assert "age of what step 2 trained: mean 1, most 1 steps" in said
    assert "task one:4/0 runs for 0 s" in said
    assert json.loads(_json(directory, capsys))["ledger"]["num_waiting"] == 1


def _json(directory, capsys):
    status(directory, as_json=True)
    return capsys.readouterr().out


def test_a_folder_without_a_run_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        status(tmp_path)


def test_a_server_that_the_run_directory_names_is_asked_only_where_that_is_allowed(
    run_dir, capsys, monkeypatch
) -> None:
    asked = []

    def no_server(url, **_):
        asked.append(url)
        raise DataError("the server is away")

    monkeypatch.setattr("trinity.runtime.record.standing.open_database", no_server)
    directory = run_dir(storage="sql", ledger="postgresql://me:hush-8@a-stranger/\x1b[2Jruns")

    status(directory)
    said = capsys.readouterr().out
    assert asked == []
    assert "note: the ledger postgresql://me:***@a-stranger/\\x1b[2Jruns is left out" in said
    assert f"If you know it: trinity status --databases {directory}" in said
    assert "run: lost, explore step 3" in said  # the rest is told all the same

    status(directory, databases=True)
    assert len(asked) == 1
    assert "note: the server is away" in capsys.readouterr().out
