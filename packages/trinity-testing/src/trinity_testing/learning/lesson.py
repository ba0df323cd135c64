"""What the tiny model is to learn: to answer in printable ASCII, of which it knows nothing.

A prompt is a few tokens, an answer at most six. The reward is the share of its tokens that are
printable ASCII; a model that knows nothing scores about 0.36.
"""

from __future__ import annotations

import json
import random
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.pretrained import no_progress_bars

from trinity_testing.tiny import make_tiny_model, make_tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ANSWER_TOKENS",
    "EXPERTS",
    "GROUP_SIZE",
    "NUM_TASKS",
    "chat_format",
    "prompts",
    "reward",
    "rows_file",
    "settings",
]

NUM_TASKS, GROUP_SIZE, ANSWER_TOKENS = 4, 8, 6
VOCAB = 259  # bytes and three special tokens
MODEL = {"vocab": VOCAB, "hidden": 16, "heads": 2, "layers": 1, "init_std": 0.1}
MAX_MODEL_LEN = 64
LEARNING_RATE = 0.03
NUM_ROWS = 64  # of the files that algorithms without rollouts read
EXPERTS = "sft_dataset"  # the name by which strategies that mix ask for demonstrations
QUESTIONS = ("say it", "write", "go on", "more")
ACCENTS = "".join(map(chr, range(0xC0, 0x100)))  # two tokens each, neither of them ASCII


@cache
def chat_format() -> ChatFormat:
    """Return how the tiny model is talked to."""
    return ChatFormat(make_tiny_tokenizer(vocab=VOCAB))


@cache
def prompts() -> list[tuple[int, ...]]:
    """Return the token ids of each task's prompt."""
    return [
        tuple(chat_format().encode(chat_format().render([{"role": "user", "content": question}])))
        for question in QUESTIONS
    ]


def reward(token_ids: Sequence[int]) -> float:
    """Return the share of the tokens that are printable ASCII."""
    return sum(token in _plain_tokens() for token in token_ids) / len(token_ids)


def settings(algorithm: str, *, schema: str, has_experts: bool = False) -> dict[str, Any]:
    """Return the configuration of a run, as YAML would hold it.

    Args:
        algorithm: its registered name.
        schema: what the algorithm trains on.
        has_experts: there are demonstrations beside the rollouts.
    """
    is_from_file = schema != "experience"
    own = {} if is_from_file else {"repeat_times": GROUP_SIZE}
    return {
        "mode": "train" if is_from_file else "both",
        "checkpoint_root_dir": str(_folder() / "runs"),
        "model": {"model_path": str(_model_folder()), "max_model_len": MAX_MODEL_LEN},
        "algorithm": {
            "algorithm_type": algorithm,
            "optimizer": {"lr": LEARNING_RATE, "weight_decay": 0.0},
            **own,
        },
        "buffer": _own_rows(schema) if is_from_file else _rollouts(has_experts=has_experts),
    }


@cache
def rows_file(schema: str) -> Path:
    """Write what there is to read: questions, with good answers, with bad ones too for pairs."""
    chance = random.Random(0)
    lines = []
    for number in range(NUM_ROWS):
        row: dict[str, str] = {"prompt": QUESTIONS[number % len(QUESTIONS)]}
        good = "".join(chance.choices(_plain_characters(), k=ANSWER_TOKENS - 1))
        bad = "".join(chance.choices(ACCENTS, k=(ANSWER_TOKENS - 1) // 2))
        row |= {"chosen": good, "rejected": bad} if schema == "dpo" else {"response": good}
        lines.append(json.dumps(row) + "\n")
    path = _folder() / f"{schema}.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _own_rows(schema: str) -> dict[str, Any]:
    size = NUM_TASKS * GROUP_SIZE
    return {
        "batch_size": size,
        "train_batch_size": size,
        "trainer_input": {"experience_buffer": _store(schema)},
    }


def _rollouts(*, has_experts: bool) -> dict[str, Any]:
    taskset = {"path": str(rows_file("experience")), "default_workflow_type": "math_workflow"}
    auxiliary = {"auxiliary_buffers": {EXPERTS: _store("sft")}} if has_experts else {}
    return {
        "batch_size": NUM_TASKS,
        "train_batch_size": NUM_TASKS * GROUP_SIZE,
        "explorer_input": {"taskset": taskset},
        "trainer_input": auxiliary,
    }


def _store(schema: str) -> dict[str, Any]:
    path = str(rows_file(schema))
    return {"storage_type": "file", "path": path, "format": {"prompt_type": "plaintext"}}


@cache
def ready() -> None:
    """Make the model, load it once and import what trains it, for the processes that are forked."""
    import_module("trinity.engines.transformers_engine")
    import_module("trinity.trainer.torch_trainer")
    from transformers import AutoModelForCausalLM

    with no_progress_bars():
        AutoModelForCausalLM.from_pretrained(_model_folder())
    prompts()


@cache
def _model_folder() -> Path:
    with no_progress_bars():
        return make_tiny_model(_folder() / "model", **MODEL)  # type: ignore[arg-type]


def _folder() -> Path:
    return Path(_held_folder().name)


@cache
def _held_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="trinity-lesson-")  # gone when the process ends


@cache
def _plain_characters() -> str:
    return "".join(map(chr, range(0x21, 0x7F)))


@cache
def _plain_tokens() -> frozenset[int]:
    return frozenset(chat_format().encode(_plain_characters()))
