"""What all sides share: the model folder, the rows, and the numbers of the task."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ANSWER_TOKENS", "GROUP", "LR", "PROMPTS", "digit_share", "make_model", "make_rows"]

PROMPTS, GROUP = 8, 8  # 64 samples a step
ANSWER_TOKENS = 8
NUM_ROWS = 512
LR = 3e-4


def digit_share(response: str, digit: str) -> float:
    """Return the share of the first eight characters that are the digit."""
    return response[:8].count(digit) / 8


def make_model(folder: Path, *, seed: int) -> Path:
    """Write a random Qwen3 of about a million weights, whose tokens are characters."""
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(
        folder, vocab=259, hidden=128, layers=5, heads=4, init_std=0.02, seed=seed
    )


def make_rows(path: Path, *, digits: str, seed: int) -> Path:
    """Write rows whose digits are drawn by the seed, so that the prompts of a step vary."""
    drawn = random.Random(seed).choices(digits, k=NUM_ROWS)
    rows = [{"question": f"say {digit}", "answer": digit} for digit in drawn]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
