"""A configuration that could run, on a machine without GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from trinity.common.config import Config, load_config


@pytest.fixture
def a_config(tmp_path: Path) -> Callable[..., Config]:
    """Return a function that loads a runnable configuration, with further settings."""

    def load(*settings: str) -> Config:
        model, tasks, file = (tmp_path / name for name in ("model", "tasks.jsonl", "run.yaml"))
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
        (model / "tokenizer.json").write_text("{}")
        tasks.write_text('{"question": "1+1", "answer": "2"}\n' * 10)
        file.write_text(
            f"model: {{model_path: {model}, max_model_len: 64}}\n"
            f"algorithm: {{algorithm_type: grpo, repeat_times: 4}}\n"
            f"buffer:\n"
            f"  batch_size: 2\n"
            f"  explorer_input:\n"
            f"    taskset: {{path: {tasks}, default_workflow_type: math_workflow}}\n"
        )
        return load_config(file, overrides=settings)

    return load
