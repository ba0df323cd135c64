"""kill -9 of vLLM's room with half of the new weights in it; run by ``nox -s vllm``."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from torch import distributed
from trinity.monitor.jsonl import read_metrics
from trinity_testing.history import read_history

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.acceptance,
    pytest.mark.skipif(not distributed.is_gloo_available(), reason="torch without gloo"),
]
NUM_STEPS = 4
KILLED = 2  # its rank in the group: engine-1
SYNC = 2  # the sync in which it dies
PLUGIN = f"""
import os
import signal
from pathlib import Path

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.synchronizer.channel import Channel

DIED = Path(os.environ["TRINITY_TEST_FOLDER"], "died")
receive, one = Channel.receive, Channel._broadcast
counts = {{"syncs": 0, "buckets": 0}}


@REWARD_FUNCTIONS.register_module("letters")
class Letters(RewardFn):
    def __call__(self, response=None, **kwargs):
        return {{"letters": sum(map(str.isalpha, response or "")) / 8}}


def counted(self, manifest):
    counts["syncs"] += 1
    counts["buckets"] = 0
    return receive(self, manifest)


def deadly(self, travelling):
    one(self, travelling)
    counts["buckets"] += 1
    is_it = self._spec.rank == {KILLED} and counts == {{"syncs": {SYNC}, "buckets": 1}}
    if is_it and "TRINITY_TEST_KILLS" in os.environ and not DIED.exists():
        DIED.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)


Channel.receive, Channel._broadcast = counted, deadly
"""


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """Return a function: its name, whether a room is killed -> the run's directory, its output."""
    root = tmp_path_factory.mktemp("runs")
    (root / "plugins").mkdir()
    (root / "plugins" / "deadly.py").write_text(PLUGIN)
    rows = [{"question": f"{i} + 1 =", "answer": str(i + 1)} for i in range(8)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "project": "vllm",
        "checkpoint_root_dir": str(root / "checkpoints"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4, "optimizer": {"lr": 1e-3}},
        "model": {"model_path": str(folder()), "max_model_len": 96, "max_response_tokens": 8},
        "buffer": {
            "batch_size": 2,
            "total_steps": NUM_STEPS,
            "explorer_input": {
                "taskset": {
                    "name": "rows",
                    "path": str(root / "rows.jsonl"),
                    "format": {"prompt_key": "question", "response_key": "answer"},
                    "default_workflow_type": "simple_workflow",
                    "default_reward_fn_type": "letters",
                }
            },
        },
        "explorer": {
            "eval_on_startup": False,
            "rollout_model": {
                "engine_type": "vllm",
                "engine_num": 2,
                "weight_sync_buffer_size": 1,
            },
        },
        "synchronizer": {"sync_method": "gloo", "sync_timeout": 120},
        "monitor": {"monitor_type": "jsonl"},
    }

    def start(name, *, kills):
        path = root / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config | {"name": name}))
        env = os.environ | {
            "TRINITY_TEST_FOLDER": str(root),
            "TRINITY_PLUGIN_DIRS": str(root / "plugins"),
            "GLOO_SOCKET_IFNAME": "lo",
            "RAY_ADDRESS": "local",
        }
        if kills:
            env["TRINITY_TEST_KILLS"] = "1"
        command = [Path(sys.executable).with_name("trinity"), "run", "--config", path]
        ended = subprocess.run(
            command, env=env, cwd=root, capture_output=True, text=True, check=False
        )
        return root / "checkpoints" / "vllm" / name, ended

    start.root = root
    return start


def left_of(root, *, limit_s=60.0):
    """Return the processes of a run that are there a while after its end."""
    ends = time.monotonic() + limit_s
    mark = f"TRINITY_TEST_FOLDER={root}".encode()
    while True:
        found = [
            path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mark in read(path)
        ]
        if not found or time.monotonic() > ends:
            return found
        time.sleep(0.5)


def read(path):
    try:
        return path.read_bytes()
    except OSError:  # gone, or another user's
        return b""


def numbers_of(directory):
    rows = [
        {name: value for name, value in row.items() if "time/" not in name and "perf/" not in name}
        for row in read_metrics(directory / "monitor")
    ]
    return sorted(rows, key=lambda row: (str(row["role"]), row["step"]))


def test_a_room_that_is_killed_amid_new_weights_is_replaced_and_nothing_else_changes(run) -> None:
    unbroken, ended = run("unbroken", kills=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    killed, ended = run("killed", kills=True)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said

    assert (run.root / "died").exists(), "nothing was killed: the weights fit into one bucket"
    assert "the process of engine-1 was lost" in (killed / "trinity.log").read_text()
    for rank in (1, 2):  # the other one, and who took the place of the killed one
        log = (killed / "logs" / f"engine-{rank - 1}.log").read_text()
        assert f"rank {rank} of 3 of rollout_weight_sync/2" in log
    assert left_of(run.root) == []
    assert read_history(killed) == read_history(unbroken)
    rows, others = numbers_of(killed), numbers_of(unbroken)
    assert [row.keys() for row in rows] == [row.keys() for row in others]
    for row, other in zip(rows, others, strict=True):
        assert row == pytest.approx(other, abs=1e-4), (row["role"], row["step"])
    trained = [row for row in rows if "actor/rollout_logprob_diff" in row]
    assert len(trained) == NUM_STEPS
    assert all(row["actor/rollout_logprob_diff"] < 1e-4 for row in trained)  # those weights
    assert [row["sample/model_version/min"] for row in trained] == [*range(NUM_STEPS)]
