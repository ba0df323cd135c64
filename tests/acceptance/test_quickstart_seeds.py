"""The quickstart learns, whatever the seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "examples/quickstart"
METRIC = "eval/held_out/reward/mean@4"

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_quickstart_goes_from_three_in_ten_to_eight_in_ten(seed: int, tmp_path: Path) -> None:
    python("prepare.py", "--seed", str(seed), folder=tmp_path)
    config = ["--config", str(QUICKSTART / "quickstart.yaml"), "--set", f"seed={seed}"]
    trinity("run", "--local", *config, folder=tmp_path)

    status = json.loads(next(tmp_path.glob("checkpoints/*/*/grpo/run.json")).read_text())

    assert status["first_evaluation"][METRIC] <= 0.3
    assert status["evaluation"][METRIC] >= 0.8


def python(script: str, *arguments: str, folder: Path) -> None:
    call([sys.executable, str(QUICKSTART / script), *arguments], folder=folder)


def trinity(*arguments: str, folder: Path) -> None:
    call([sys.executable, "-m", "trinity", *arguments], folder=folder)


def call(command: list[str], *, folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=1200)
