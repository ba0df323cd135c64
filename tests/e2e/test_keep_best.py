"""A run whose learning rate is far too high: its best checkpoint stays, and it stops early."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

REWARD = '''
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("distinct_even_reward")
class DistinctEvenReward(RewardFn):
    """The share of different even token ids: who repeats one token has little of it."""

    def __call__(self, *, response_token, **kwargs) -> dict[str, float]:
        ids = [int(token) for token in response_token]
        return {"even": len({one for one in ids if one % 2 == 0}) / max(1, len(ids))}
'''
NAME = "eval/held_out/reward/mean@2"


@pytest.fixture
def collapsing(config_dict, taskset, rows, plugin_dir, write_yaml):
    """Return the arguments of a run that collapses within a few steps."""
    taskset["default_reward_fn_type"] = "distinct_even_reward"
    config_dict["algorithm"]["optimizer"]["lr"] = 0.5
    config_dict["buffer"]["total_steps"] = 40
    held_out = taskset | {"name": "held_out", "repeat_times": 2}
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [held_out]
    config_dict["explorer"] |= {"eval_interval": 1, "eval_on_startup": True}
    config_dict["trainer"] = {
        "save_interval": 1,
        "max_checkpoints_to_keep": 1,
        "keep_best": {"num": 2},
        "early_stopping": {"patience": 6, "min_delta": 0.01},
    }
    folder = plugin_dir(REWARD, "rewards_of_test.py")
    return ["--config", write_yaml(config_dict), "--plugin-dir", folder]


def evaluations(run_dir) -> dict[int, float]:
    lines = (run_dir / "monitor/metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["step"]: row[NAME] for row in rows if NAME in row}


def check(run_dir, status: str) -> None:
    """Compare what is on the disk with what the evaluations were."""
    values = evaluations(run_dir)
    last = max(values)
    best = sorted((step for step in values if step), key=lambda step: (-values[step], step))[:2]
    folders = {int(one.name.removeprefix("global_step_")) for one in run_dir.glob("global_step_*")}
    assert folders == {*best, last}
    assert last < 40
    top = max(values, key=lambda step: (values[step], -step))
    assert max(value for step, value in values.items() if step > top) <= values[top] + 0.01
    told = ", ".join(f"global_step_{step} {values[step]:.4g}" for step in best)
    assert f"best checkpoints by {NAME}: {told}" in status
    assert f"evaluations since {NAME}" in status


BETTER = '''
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn

calls = []


@REWARD_FUNCTIONS.register_module("rising_reward")
class RisingReward(RewardFn):
    """Each reward is higher than the ones before, so each evaluation is the best."""

    def __call__(self, **kwargs) -> dict[str, float]:
        calls.append(1)
        return {"calls": float(len(calls))}
'''


def test_no_checkpoint_is_left_of_a_best_that_the_last_evaluation_displaced(
    trinity, collapsing, run_dir, plugin_dir
) -> None:
    folder = plugin_dir(BETTER, "rising.py")
    rising = "buffer.explorer_input.eval_tasksets.0.default_reward_fn_type=rising_reward"
    given = ["trainer.keep_best.num=1", "buffer.total_steps=3", rising]
    options = [word for one in given for word in ("--set", one)]

    ended = trinity("run", "--local", *collapsing, "--plugin-dir", folder, *options)

    assert ended.code == 0, ended.stderr
    assert [one.name for one in run_dir.glob("global_step_*")] == ["global_step_3"]


@pytest.mark.acceptance
def test_the_best_checkpoints_of_a_run_that_collapses_stay(
    trinity, collapsing, run_dir, tmp_path
) -> None:
    short = trinity("run", "--local", *collapsing, "--set", "buffer.total_steps=3")
    assert short.code == 0, short.stderr
    assert "stopping early" not in short.stdout
    said = trinity("run", "--local", *collapsing).stdout  # goes on with the counts of the first

    assert f"stopping early: {NAME} has not improved" in said
    assert "for 6 evaluations" in said
    status = trinity("status", run_dir).stdout
    check(run_dir, status)
    told = r"best checkpoints by \S+: (global_step_\d+) ([\d.]+)"
    best, value = re.search(told, status).groups()
    told = rf"best by trainer.keep_best: \S+/{best}/actor/huggingface \({value}\)\n"
    assert re.search(told, said)
    assert "steps left" not in status  # of a run that ended
    report = tmp_path / "report.html"
    assert trinity("view", run_dir, "--export", report).code == 0
    assert f"best checkpoints by {NAME}: {best} {value}" in report.read_text()
    again = trinity("run", "--local", *collapsing).stdout
    assert "run: finished (already)" in again
    assert re.search(told, again)
    newest = trinity("export", run_dir, "--to", tmp_path / "newest").stdout
    assert f"note: the best checkpoint by {NAME} is {best} (" in newest
    chosen = trinity("export", run_dir / best, "--to", tmp_path / "best").stdout
    assert "the best checkpoint" not in chosen


def test_a_metric_of_no_evaluation_set_is_said_before_the_run(trinity, collapsing) -> None:
    ended = trinity(
        "config", "check", *collapsing[1:2], "--set", "trainer.keep_best.metric=eval/other/reward"
    )

    assert "trainer.keep_best.metric" in ended.stdout
    assert "eval/held_out/reward/mean@k" in ended.stdout


@pytest.mark.acceptance
@pytest.mark.parametrize("mode", ["--local", pytest.param("", marks=pytest.mark.ray)])
def test_best_checkpoints_and_patience_survive_kills(
    collapsing, run_dir, tmp_path, trinity, mode
) -> None:
    command = [sys.executable, "-m", "trinity", "run", *map(str, collapsing), *mode.split()]
    for num in (2, 4):
        process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
        deadline = time.monotonic() + 240
        while not (run_dir / f"evaluations/held_out/from-{num:08d}.bin").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)

    check(run_dir, trinity("status", run_dir).stdout)
