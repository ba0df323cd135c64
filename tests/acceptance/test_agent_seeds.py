"""The agent with two tools learns which one is wanted, whatever the seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/agents"
METRIC = "eval/held_out/reward/mean@4"
NEEDS = {"tiny": "openai", "openai_agents_tiny": "agents"}

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", NEEDS)
def test_the_held_out_reward_rises_by_two_in_ten(name: str, seed: int, tmp_path: Path) -> None:
    if find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs the package {NEEDS[name]}")
    call(sys.executable, str(EXAMPLE / "prepare.py"), "--seed", str(seed), folder=tmp_path)
    config = ["--config", str(EXAMPLE / f"{name}.yaml"), "--set", f"seed={seed}"]
    call(sys.executable, "-m", "trinity", "run", "--local", *config, folder=tmp_path)

    status = json.loads(next(tmp_path.glob("checkpoints/*/*/agent/run.json")).read_text())

    first, last = status["first_evaluation"][METRIC], status["evaluation"][METRIC]
    assert last - first >= 0.2, f"{name}, seed {seed}: {first:.3f} -> {last:.3f}"


def call(*command: str, folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=1800)
