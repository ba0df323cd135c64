"""The tasks, as all sides share them: the rows, the reward, and the numbers of a step.

digits   told "say 3", say 3; the model begins at random
sums     told "34+58", write 92 backwards, "29"; the model was shown some sums before
sorting  told "30717", write its digits in order, "01377"; 4 to 8 digits; the model was shown some
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["TASKS", "Task", "make_rows"]

NUM_ROWS = 512


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        prompts: questions a step.
        group: answers to each.
        answer_tokens: the most that an answer has.
        lr: the learning rate.
        reward: of a response and the row's answer, 0 to 1.
        question: returns a question and its answer.
    """

    prompts: int
    group: int
    answer_tokens: int
    lr: float
    reward: Callable[[str, str], float]
    question: Callable[[random.Random], tuple[str, str]]


def make_rows(path: Path, *, task: Task, seed: int) -> Path:
    """Write rows that are drawn by the seed, so that the prompts of a step vary."""
    generator = random.Random(seed)
    drawn = [task.question(generator) for _ in range(NUM_ROWS)]
    rows = [{"question": question, "answer": answer} for question, answer in drawn]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def digit_share(response: str, digit: str) -> float:
    """Return the share of the first eight characters that are the digit."""
    return response[:8].count(digit) / 8


def _a_digit(generator: random.Random) -> tuple[str, str]:
    digit = generator.choice("0123456789")
    return f"say {digit}", digit


def is_right(response: str, answer: str) -> float:
    """Return 1 for the answer and nothing else, else 0."""
    return float(response.strip() == answer)


def _two_numbers(generator: random.Random) -> tuple[str, str]:
    """Return two numbers of two digits, and their sum backwards: the ones come first."""
    a, b = generator.randint(10, 99), generator.randint(10, 99)
    return f"{a}+{b}", str(a + b)[::-1]


def _digits_to_sort(generator: random.Random) -> tuple[str, str]:
    digits = generator.choices("0123456789", k=generator.randint(4, 8))
    return "".join(digits), "".join(sorted(digits))


TASKS = {
    "digits": Task(
        prompts=8, group=8, answer_tokens=8, lr=3e-4, reward=digit_share, question=_a_digit
    ),
    "sums": Task(
        prompts=16, group=8, answer_tokens=4, lr=1e-4, reward=is_right, question=_two_numbers
    ),
    "sorting": Task(
        prompts=16, group=8, answer_tokens=10, lr=1e-4, reward=is_right, question=_digits_to_sort
    ),
}
