"""A selector that looks for a pass rate of one half finds it, and a kill takes nothing from it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from trinity_testing.tiny import make_tiny_model

pytestmark = pytest.mark.acceptance

NUM_ROWS, NUM_STEPS, BATCH, REPEAT = 320, 50, 4, 8
SEEN_STEPS = 20  # the last ones, which are compared
DYING_RUNS = Path(__file__).parents[1] / "e2e/dying_runs.py"
EXPLORED = "trinity.explorer.explorer:Explorer.explore_step"
PLUGIN = '''
import random

from trinity.common.experience import Experience
from trinity.common.workflows import WORKFLOWS, Workflow


@WORKFLOWS.register_module("solves_some")
class SolvesSome(Workflow):
    """Solves a task in as many of its runs as the row says, by chance."""

    can_repeat = True

    def set_repeat_times(self, repeat_times, run_id_base):
        self.repeat_times, self.first = repeat_times, run_id_base

    def run(self):
        rate, found = float(self.task.raw_task["rate"]), []
        for run in range(self.first, self.first + self.repeat_times):
            dice = random.Random(f"{self.task.batch_id} {self.task.task_id} {run}")
            found.append(
                Experience(tokens=[1, 2, 3], prompt_length=2, reward=float(dice.random() < rate))
            )
        return found
'''


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def written(folder: Path, model: Path, *, seed: int, selector: str, name: str) -> Path:
    """Write a mixed taskset and the configuration of a run; return its path.

    A row's pass rate lies anywhere between those that two reference models had on it.
    """
    dice, rows = random.Random(seed), []
    for number in range(NUM_ROWS):
        weak, strong = sorted((dice.random(), dice.random()))
        rate = weak + (strong - weak) * dice.random()
        rows.append({"question": f"{number}?", "weak": weak, "strong": strong, "rate": rate})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "plugins").mkdir(exist_ok=True)
    (folder / "plugins/solves_some.py").write_text(PLUGIN)
    chosen = {"selector_type": selector, "seed": seed}
    if selector == "difficulty_based":
        chosen |= {"feature_keys": ["weak", "strong"], "kwargs": {"target_reward": 0.5}}
    taskset = {
        "name": "mixed", "path": str(folder / "rows.jsonl"),
        "format": {"prompt_key": "question"}, "default_workflow_type": "solves_some",
        "data_selector": chosen,
    }  # fmt: skip
    config = {
        "mode": "explore", "project": "difficulty", "name": name, "seed": seed,
        "checkpoint_root_dir": str(folder / "runs"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": REPEAT},
        "model": {"model_path": str(model), "max_model_len": 96, "max_response_tokens": 4},
        "buffer": {
            "batch_size": BATCH, "total_steps": NUM_STEPS, "explorer_input": {"taskset": taskset},
            "trainer_input": {"experience_buffer": {
                "storage_type": "file", "path": str(folder / f"{name}.jsonl"),
            }},
        },
        "data_processor": {
            "experience_pipeline": {"operators": [{"name": "pass_rate_calculator"}]}
        },
        "explorer": {"eval_on_startup": False},
        "monitor": {"monitor_type": "jsonl"},
    }  # fmt: skip
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def explored(folder: Path, name: str) -> list[tuple[int, float]]:
    """Return the mean reward of each step."""
    lines = (folder / f"runs/difficulty/{name}/monitor/metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["step"], row["rollout/reward/mean"]) for row in rows if row["role"] == "explorer"]


def distance(folder: Path, name: str) -> float:
    """Return how far the pass rates of the tasks of the last steps were from one half."""
    rows = [json.loads(line) for line in (folder / f"{name}.jsonl").open()]
    rewards: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        batch, task = row["eid"]["batch"], row["eid"]["task"]
        if int(batch) > NUM_STEPS - SEEN_STEPS:
            rewards.setdefault((str(batch), str(task)), []).append(row["reward"])
    assert len(rewards) == SEEN_STEPS * BATCH
    return fmean(abs(fmean(values) - 0.5) for values in rewards.values())


@pytest.fixture(scope="module")
def started():
    """Return a function that runs a configuration in a fork of one process; see the script."""
    with subprocess.Popen(
        [sys.executable, DYING_RUNS], env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip

        def run(config: Path, *, killed_at_step: int | None = None) -> None:
            request = {"config": str(config), "plugins": str(config.parent / "plugins")}
            if killed_at_step is not None:
                call = {"at": EXPLORED, "call": killed_at_step, "side": "after"}
                request |= call
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert answer["code"] == (0 if killed_at_step is None else -9), answer["said"]

        yield run
        process.stdin.close()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tasks_of_the_wanted_difficulty_are_chosen_and_after_a_kill_the_same_ones(
    seed: int, tmp_path: Path, model: Path, started
) -> None:
    shuffle = written(tmp_path, model, seed=seed, selector="shuffle", name="shuffle")
    chosen = written(tmp_path, model, seed=seed, selector="difficulty_based", name="chosen")
    broken = written(tmp_path, model, seed=seed, selector="difficulty_based", name="broken")
    started(shuffle)
    started(chosen)
    started(broken, killed_at_step=26)
    started(broken)

    far, near, near_too = (distance(tmp_path, name) for name in ("shuffle", "chosen", "broken"))
    print(f"| {seed} | {far:.3f} | {near:.3f} | {near_too:.3f} |")  # noqa: T201
    assert near < far
    assert explored(tmp_path, "broken") == explored(tmp_path, "chosen")
    assert near_too == near
