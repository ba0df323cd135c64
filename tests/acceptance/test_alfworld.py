"""The tiny ALFWorld examples learn to win games that they never saw, whatever the seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREPARE = ROOT / "examples/grpo_alfworld/prepare.py"
METRIC = "eval/held_out/success/mean@2"

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(find_spec("alfworld") is None, reason="pip install trinity-envs-alfworld"),
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("example", ["grpo_alfworld", "grpo_alfworld_general_multi_step"])
def test_P046_alfworld_goes_from_three_in_ten_games_to_five_in_ten(
    example: str, seed: int, tmp_path: Path
) -> None:
    config = ROOT / "examples" / example / "alfworld_tiny.yaml"
    call([str(PREPARE), "--seed", str(seed)], folder=tmp_path)
    started = ["-m", "trinity", "run", "--local", "--config", str(config)]
    call([*started, "--set", f"seed={seed}"], folder=tmp_path)

    status = json.loads(next(tmp_path.glob("checkpoints/*/*/*grpo/run.json")).read_text())

    assert status["first_evaluation"][METRIC] <= 0.3
    assert status["evaluation"][METRIC] >= 0.5


def call(arguments: list[str], *, folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, timeout=2400
    )
