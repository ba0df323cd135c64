"""The example as it stands: a tiny model learns which command solves which task."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import needs_bwrap

EXAMPLE = Path(__file__).parents[3] / "examples" / "harbor"


def test_the_example_prepares_a_row_for_each_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["prepare.py"])

    runpy.run_path(str(EXAMPLE / "prepare.py"), run_name="__main__")

    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    rows = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    assert len(rows) == 5
    assert all(row["instruction"] and row["digest"] for row in rows)


@needs_bwrap
@pytest.mark.slow
@pytest.mark.acceptance
def test_the_reward_of_the_example_rises(tmp_path):
    commands = (
        [sys.executable, str(EXAMPLE / "prepare.py")],
        [
            *(sys.executable, "-m", "trinity", "run", "--local"),
            *("--config", str(EXAMPLE / "harbor.yaml"), "--set", "monitor.monitor_type=jsonl"),
        ],
    )
    for command in commands:
        ended = subprocess.run(
            command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=900
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = (tmp_path / "checkpoints/harbor/shell/grpo/monitor/metrics.jsonl").read_text()
    rows = [json.loads(line) for line in lines.splitlines()]
    rewards = [row["rollout/reward/mean"] for row in rows if "rollout/reward/mean" in row]
    gradients = [row["actor/grad_norm"] for row in rows if "actor/grad_norm" in row]

    assert len(rewards) == len(gradients) == 10
    assert sum(rewards[-2:]) / 2 > sum(rewards[:2]) / 2 + 0.1
    assert min(gradients) > 0
    assert sum(row.get("rollout/failed_runs", 0) for row in rows) == 0
