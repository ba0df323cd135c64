from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from trinity.common.config import Machine

GPUS = Machine(num_gpus=8, num_cores=64, has_bf16=True)
CPU = Machine(num_gpus=0, num_cores=2, has_bf16=False)


@pytest.fixture
def data() -> Path:
    return Path(__file__).parent / "data"


@pytest.fixture
def gpus() -> Machine:
    return GPUS


@pytest.fixture
def cpu() -> Machine:
    return CPU


@pytest.fixture
def a_file(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a YAML file."""

    def write(text: str, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_text(dedent(text))
        return path

    return write


@pytest.fixture
def a_model(tmp_path: Path) -> Path:
    """Return a folder that looks like a model."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def some_tasks(tmp_path: Path) -> Path:
    """Return a jsonl file of ten rows."""
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"question": "{n}+1", "answer": "{n + 1}"}}\n' for n in range(10)))
    return path


@pytest.fixture
def a_run(a_file, a_model, some_tasks) -> Callable[..., Path]:
    """Return a function that writes a runnable configuration, with further settings below it."""

    def write(further: str = "") -> Path:
        return a_file(
            f"mode: both\n"
            f"model: {{model_path: {a_model}, max_model_len: 64}}\n"
            f"algorithm: {{algorithm_type: grpo, repeat_times: 4}}\n"
            f"buffer:\n"
            f"  batch_size: 2\n"
            f"  explorer_input:\n"
            f"    taskset:\n"
            f"      path: {some_tasks}\n"
            f"      default_workflow_type: math_workflow\n"
            f"      format: {{prompt_key: question, response_key: answer}}\n" + dedent(further)
        )

    return write
