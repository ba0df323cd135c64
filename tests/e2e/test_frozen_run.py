"""A run directory that an older version left goes on."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from trinity_testing.history import read_history

FROZEN = Path(__file__).with_name("frozen_run")  # three optimizer steps, made before manifests


@pytest.fixture
def frozen(tmp_path):
    from trinity_testing.tiny import make_tiny_model

    shutil.copytree(FROZEN, tmp_path, dirs_exist_ok=True)
    make_tiny_model(tmp_path / "model", vocab=259, hidden=16, layers=1)
    return tmp_path / "runs" / "frozen" / "run"


def test_a_run_from_before_there_were_manifests_goes_on_and_finishes(frozen, trinity) -> None:
    then = read_history(frozen)

    ended = trinity("run", "--local", "--config", "run.yaml")

    assert ended.code == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("manifest.json") == 1
    assert "global_step_3 has no manifest.json" in ended.stdout.replace("\n", " ")
    assert "going on after explore step" in ended.stdout
    history = read_history(frozen)
    assert history[:3] == then
    assert set(Counter(eid for step in history for eid in step).values()) == {1}
    assert sum(map(len, history)) == 32
    assert json.loads((frozen / "run.json").read_text())["status"] == "finished"
    assert (frozen / f"global_step_{len(history)}" / "manifest.json").exists()


REWARD = """
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("token_reward")
class TokenReward(RewardFn):
    def __call__(self, *, response_token, truth, **kwargs) -> float:
        return float(sum(int(token) % 2 for token in response_token) + 100 * int(truth))
"""


def test_its_rollouts_are_scored_with_another_reward(frozen, trinity, plugin_dir, tmp_path) -> None:
    to, truths = tmp_path / "new", rows_of(tmp_path / "rows.jsonl")
    ended = trinity(
        *("rescore", frozen, "--reward", "token_reward", "--to", to),
        *("--plugin-dir", plugin_dir(REWARD, "rewards_of_test.py")),
    )

    assert ended.code == 0, ended.stderr
    kept = {str(row["eid"]): row for row in rows_of(frozen / "buffer" / "explorer_output.jsonl")}
    scored = {str(row["eid"]): row for row in rows_of(to / "experiences.jsonl")}
    assert scored.keys() == kept.keys()
    for name, row in scored.items():
        odd = sum(token % 2 for token in kept[name]["tokens"][kept[name]["prompt_length"] :])
        truth = truths[row["info"]["task_index"]["index"]]["answer"]
        assert row["reward"] == odd + 100 * int(truth)
        assert row["logprobs"] == kept[name]["logprobs"]
    checked = trinity("config", "check", to / "run.yaml")
    assert f"{to / 'run.yaml'}: ok" in checked.stdout


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
