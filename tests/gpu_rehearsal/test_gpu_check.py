"""The script for whoever has a GPU, on the pretend one and without any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


def table_of(*items: str, gpus: str) -> str:
    command = [sys.executable, SCRIPT, "--small", *items]
    environment = {**os.environ, "PRETEND_CUDA": gpus}
    ended = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=300
    )
    print(ended.stdout)
    return ended.stdout


def test_what_works_has_a_number_and_what_does_not_is_a_row_as_well() -> None:
    said = table_of("decode", "cuda-ipc", gpus="1")

    assert "| Decode step of the embedded engine, bfloat16, 64 replies. | ok |" in said
    assert "| FAILED | HandleError: this build of torch has no libcudart" in said
    assert "device: 1 x Pretend GPU" in said
    assert "trinity-core 0.1.0, torch 2." in said


def test_without_a_gpu_each_row_says_so() -> None:
    assert "| not tried | no GPU |" in table_of("train", gpus="")
