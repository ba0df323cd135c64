"""The tiny WebShop example learns to buy what customers want whose goals it never saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/grpo_webshop"
METRIC = "eval/held_out/success/mean@2"

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        find_spec("trinity_envs_webshop") is None, reason="pip install trinity-envs-webshop"
    ),
]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_P046_webshop_goes_from_three_in_ten_goals_to_five_in_ten(
    seed: int, tmp_path: Path
) -> None:
    call([str(EXAMPLE / "prepare.py"), "--seed", str(seed)], folder=tmp_path)
    config = ["--config", str(EXAMPLE / "webshop_tiny.yaml"), "--set", f"seed={seed}"]
    call(["-m", "trinity", "run", "--local", *config], folder=tmp_path)

    status = json.loads(next(tmp_path.glob("checkpoints/*/*/grpo/run.json")).read_text())

    assert status["first_evaluation"][METRIC] <= 0.3
    assert status["evaluation"][METRIC] >= 0.5


def call(arguments: list[str], *, folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, timeout=2400
    )
