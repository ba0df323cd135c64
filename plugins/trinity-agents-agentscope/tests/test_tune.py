"""``tune()`` of the published AgentScope in a user's script, on a Ray that is running."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("agentscope", reason="pip install 'trinity-agents-agentscope[agentscope]'")
pytestmark = [pytest.mark.ray, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("tuning.py")
RAY = str(Path(sys.executable).with_name("ray"))
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a script left behind."""

    code: int
    said: str
    asked: list[str]  # the questions of its runs
    run: Path

    def rows(self, role: str) -> list[dict[str, Any]]:
        """Return what the jsonl monitor wrote of a role."""
        lines = (self.run / "monitor" / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["role"] == role]

    def experiences(self) -> list[dict[str, Any]]:
        """Return each experience as the workflow gave it."""
        lines = (self.run / "buffer" / "explorer_output.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def head() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Return the folder and the process of a Ray that a person started."""
    folder = tempfile.mkdtemp(prefix="ray")
    env = PLAIN | {
        "RAY_TMPDIR": folder,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    start = [RAY, "start", "--head", "--block", "--port=0", "--num-cpus=4"]
    start += ["--include-dashboard=false", "--object-store-memory=100000000"]
    with (Path(folder) / "head.log").open("w") as log:
        process = subprocess.Popen(start, env=env, stdout=log, stderr=log)
    note, end = Path(folder) / "ray" / "ray_current_cluster", time.monotonic() + 120
    while not note.exists() and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(1)
    try:
        yield folder, process
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def tuned(tmp_path, tiny_model, head) -> Callable[..., Tuned]:
    """Return what runs a scenario of ``tuning.py`` in a folder of its own."""
    rows = [{"question": f"{n} + 1 =", "answer": str(n + 1)} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    others = [{"question": f"{n} + 2 =", "answer": str(n + 2)} for n in range(4)]
    (tmp_path / "other.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in others))
    shutil.copytree(tiny_model, tmp_path / "model")

    def call(scenario: str, *, run: str = "checkpoints/as/one", **changed: Any) -> Tuned:
        config = yaml.safe_load((SCRIPT.with_name("tuning.yaml")).read_text()) | changed
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
        ended = subprocess.run(
            [sys.executable, str(SCRIPT), scenario],
            cwd=tmp_path,
            env=PLAIN | {"OMP_NUM_THREADS": "1", "RAY_TMPDIR": head[0]},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        asked = tmp_path / "asked.txt"
        (found,) = [*tmp_path.glob(run)] or [tmp_path]
        return Tuned(
            code=ended.returncode,
            said=ended.stdout + ended.stderr,
            asked=asked.read_text().splitlines() if asked.exists() else [],
            run=found,
        )

    return call


def test_P096_P106_P155_P156_and_P157_a_closure_and_a_judge_of_a_script_train(tuned, head) -> None:
    done = tuned("judge")

    assert done.code == 0, done.said
    assert 'tuned {"success": true}' in done.said
    assert "joined the Ray cluster" in done.said
    assert {question[4:5] for question in done.asked} == {"1", "2"}  # evaluated, and trained
    explored = done.rows("explorer")
    trained = [row for row in explored if "rollout/len_judged/mean" in row]
    assert [row["rollout/len_judged/mean"] for row in trained] == [3.0]
    assert trained[0]["rollout/len/mean"] > 0
    assert any("eval/eval_taskset/reward/mean@1" in row for row in explored)
    assert {row["task"]["question"][4:5] for row in done.experiences() if "task" in row} <= {"2"}
    assert (done.run / "global_step_1").is_dir()


def test_P097_P100_and_P101_without_a_judge_each_of_two_calls_is_trained_with_its_ids(
    tuned,
) -> None:
    done = tuned("itself")

    assert done.code == 0, done.said
    rows = done.experiences()
    steps = sorted(row["eid"]["step"] for row in rows)
    assert steps == [0] * 8 + [1] * 8
    assert all(len(row["logprobs"]) == len(row["tokens"]) - row["prompt_length"] for row in rows)
    assert done.rows("trainer")[0]["actor/rollout_logprob_diff"] < 1e-4  # later ones are off-policy


def test_P108_and_P109_a_react_agent_with_a_tool_trains_and_the_cluster_goes_on(
    tuned, head
) -> None:
    done = tuned("agent")

    assert done.code == 0, done.said
    assert done.rows("trainer")
    assert head[1].poll() is None


def test_P105_a_judge_that_forgets_the_reward_ends_the_run_with_its_name(tuned) -> None:
    done = tuned("forgetful")

    assert done.code == 1
    assert "judge_func forgets raised ValidationError" in done.said
    assert "trinity.errors.RunFailedError" in done.said


def test_P097_and_P102_no_reward_anywhere_is_one_clear_error(tuned) -> None:
    done = tuned("no_reward")

    assert done.code == 1
    assert "gave no reward, and there is no judge function" in done.said


def test_P106_a_run_that_fails_raises(tuned) -> None:
    done = tuned("raises")

    assert done.code == 1
    assert "workflow_func raises raised KeyError at " in done.said
    assert "tuned" not in done.said


def test_P107_and_P158_without_a_file_the_call_says_model_and_algorithm(tuned) -> None:
    done = tuned("no_file", run="checkpoints/from_the_call/Experiment-*")

    assert done.code == 0, done.said
    config = yaml.safe_load((done.run / "config.yaml").read_text())
    assert config["algorithm"]["algorithm_type"] == "multi_step_grpo"
    assert config["algorithm"]["repeat_times"] == 2
    assert config["model"]["max_model_len"] == 512
    assert config["explorer"]["rollout_model"]["tool_call_parser"] == "hermes"
    assert done.rows("trainer")
