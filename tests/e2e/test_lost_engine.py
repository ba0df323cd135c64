"""One of two engines dies in the middle of a step: the other makes its runs, each once.

It waits a second for it where a run waits a minute: a process that takes its place needs longer.
"""

from __future__ import annotations

import copy
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import trinity
from trinity.common.config import load_config
from trinity.common.experience import Experience
from trinity.common.workflows import WORKFLOWS, Workflow
from trinity.runtime.ray.dispatcher import Dispatcher
from trinity.runtime.supervisor import RestartPolicy
from trinity_testing.history import read_history

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]
STARTED = re.compile(r"(\S+) started: node \S+ process (\d+)")
LIMIT_S = 400.0
STEPS, GROUPS, RUNS = 4, 4, 4


@WORKFLOWS.register_module("asks_before_and_after")
class AsksBeforeAndAfter(Workflow):
    """Asks, notes in a folder which runner it is in, and asks again a while later."""

    def run(self):
        prompt = [{"role": "user", "content": self.task.raw_task["question"]}]
        self.model.chat(prompt)
        folder = Path(self.task.workflow_args["folder"])
        (folder / f"{os.getpid()}-{uuid.uuid4().hex}").touch()
        time.sleep(1.5)
        (reply,) = self.model.chat(prompt)
        reward = float(len(reply.response_text or ""))
        return [
            Experience(
                tokens=reply.tokens,
                logprobs=reply.logprobs,
                prompt_length=reply.prompt_length,
                reward=reward,
            )
        ]


@pytest.fixture
def config(config_dict, taskset, tmp_path):
    """Return four steps of four groups on two engines."""
    (tmp_path / "asked").mkdir()
    taskset["default_workflow_type"] = "asks_before_and_after"
    taskset["workflow_args"] = {"folder": str(tmp_path / "asked")}
    del taskset["default_reward_fn_type"]
    config_dict["buffer"] |= {"batch_size": GROUPS, "total_steps": STEPS}
    config_dict["explorer"]["rollout_model"] = {"engine_num": 2}
    return config_dict


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait a second for a lost engine, and look as much more often whether it is there."""
    init = Dispatcher.__init__

    def made(self, handles):
        init(self, handles, policy=RestartPolicy(move_s=1.0), poll_s=0.2)

    monkeypatch.setattr(Dispatcher, "__init__", made)


@pytest.fixture
def killed(run_dir, tmp_path):
    """Kill engine-1 while runs of the second step are between their questions."""
    over, pids = threading.Event(), []

    def look():
        while not over.wait(0.05) and not pids:
            logs = [path.read_text() for path in run_dir.rglob("trinity.log")]
            found = dict(STARTED.findall("\n".join(logs)))
            asked = Counter(path.name.partition("-")[0] for path in (tmp_path / "asked").iterdir())
            if asked[found.get("runner-1", "")] > GROUPS // 2 * RUNS:
                pids.append(int(found["engine-1"]))
                os.kill(pids[0], signal.SIGKILL)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield pids
    over.set()
    thread.join(10)


def check_taken_over(run_dir):
    """Check that the other engine took over before a process was there again."""
    (log,) = [path.read_text() for path in run_dir.rglob("trinity.log")]
    taken_over = re.search(r"engine-1 has been lost for \d+ s: other engines take over \d", log)
    back = log.find("engine-1 was lost and is there again")
    assert taken_over
    assert back < 0 or taken_over.start() < back


@pytest.mark.parametrize(
    "synchronizer",
    [
        {"sync_style": "fixed"},
        {"sync_style": "fixed", "sync_offset": 1},
        {"sync_style": "explorer_driven"},
        {"sync_style": "trainer_driven"},
    ],
    ids=["fixed", "offset-1", "explorer_driven", "trainer_driven"],
)
def test_the_runs_of_an_engine_that_dies_are_made_by_the_other_in_each_style(
    config, write_yaml, run_dir, ray_cluster, killed, synchronizer
) -> None:
    config["synchronizer"] = synchronizer

    result = trinity.run(load_config(write_yaml(config)))

    assert killed
    check_taken_over(run_dir)
    uids = [uid for step in read_history(result.directory) for uid in step]
    assert sorted(uids) == sorted(
        f"{step}/{task}/{run}/0"
        for step in range(1, STEPS + 1)
        for task in range(GROUPS)
        for run in range(RUNS)
    )


def test_the_runs_of_an_engine_that_dies_are_made_by_the_other_where_the_trainer_is_apart(
    config, write_yaml, run_dir, ray_cluster, killed, tmp_path
) -> None:
    config["buffer"]["trainer_input"] = {"experience_buffer": {"storage_type": "sql"}}
    config["synchronizer"] = {"sync_timeout": 300}
    trainer = copy.deepcopy(config) | {"mode": "train", "name": "tiny"}
    path = write_yaml(trainer, "trainer.yaml")
    with (tmp_path / "trainer.said").open("w") as said:
        apart = subprocess.Popen(
            [sys.executable, "-m", "trinity", "run", "--local", "--config", str(path)],
            stdout=said, stderr=subprocess.STDOUT, cwd=tmp_path,
        )  # fmt: skip
    try:
        trinity.run(load_config(write_yaml(config | {"mode": "explore"})))
        assert apart.wait(LIMIT_S) == 0, (tmp_path / "trainer.said").read_text()
    finally:
        apart.kill()
        apart.wait(30)

    assert killed
    with closing(sqlite3.connect(run_dir / "buffer" / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT uid FROM experience WHERE train_place >= 0").fetchall()
    assert len(set(rows)) == len(rows) == STEPS * GROUPS * RUNS
