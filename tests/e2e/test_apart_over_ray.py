"""Two explorers and a trainer, each a run of its own with rooms in one Ray cluster, and kills."""

from __future__ import annotations

import copy
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]
LIMIT_S = 500.0
NUM_STEPS, BATCH, TRIES = 8, 2, 4  # both explorers' together


@pytest.fixture
def sides(config_dict, write_yaml):
    """Write the three configurations and return their paths by name."""
    buffer = {"storage_type": "sql"}
    config_dict["buffer"] |= {"batch_size": BATCH, "trainer_input": {"experience_buffer": buffer}}
    config_dict["synchronizer"] = {"sync_timeout": 300, "standalone": True}
    paths = {}
    for name in ("one", "two"):
        config = copy.deepcopy(config_dict) | {"mode": "explore"}
        config["explorer"]["name"] = name
        paths[name] = write_yaml(config, f"{name}.yaml")
    trainer = config_dict | {"mode": "train", "trainer": {"save_interval": 1}}
    return paths | {"trainer": write_yaml(trainer, "trainer.yaml")}


@pytest.fixture
def start(sides, ray_cluster, tmp_path):
    """Return a function that starts a side as a user does, in the cluster of this test."""
    running = []

    def begin(name):
        said = tmp_path / f"{name}-{len(running)}.said"
        with said.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "trinity", "run", "--config", str(sides[name])],
                env=os.environ | {"RAY_ADDRESS": ray_cluster.address, "OMP_NUM_THREADS": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=tmp_path,
            )
        running.append(process)
        return process, said

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def asked(run_dir, query):
    try:
        path = f"file:{run_dir}/buffer/ledger.db?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=10)) as ledger:
            return ledger.execute(query).fetchall()
    except sqlite3.OperationalError:  # it is not there yet
        return []


def killed_when(side, condition):
    """Kill the driver of a side as soon as something holds."""
    process, said = side
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, said.read_text()
        assert process.poll() is None, said.read_text()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL


def test_a_killed_trainer_and_a_killed_explorer_go_on_in_one_cluster(start, run_dir) -> None:
    def num_trained():
        query = "SELECT COALESCE(MAX(train_step), 0) FROM experience"
        return next(iter(asked(run_dir, query)), (0,))[0]

    def num_of(explorer):
        query = f"SELECT COUNT(*) FROM task WHERE batch LIKE '{explorer}:%' AND state = 'done'"
        return next(iter(asked(run_dir, query)), (0,))[0]

    trainer, one, two = start("trainer"), start("one"), start("two")
    killed_when(one, lambda: num_of("one") >= 1)
    one = start("one")
    killed_when(trainer, lambda: num_trained() >= 2)
    trainer = start("trainer")

    for process, said in (trainer, one, two):
        code = process.wait(LIMIT_S)
        assert code == 0, said.read_text()
    rows = asked(run_dir, "SELECT train_step, uid FROM experience WHERE train_place >= 0")
    assert Counter(Counter(step for step, _ in rows).values()) == {BATCH * TRIES: NUM_STEPS}
    assert len({uid for _, uid in rows}) == len(rows) == NUM_STEPS * BATCH * TRIES
    lines = [json.loads(line) for line in (run_dir / "history.jsonl").read_text().splitlines()]
    assert {(line["step"], uid) for line in lines for uid in line["eids"]} == set(rows)
