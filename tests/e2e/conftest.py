"""A tiny model, a few rows and a configuration that trains on them in a second or two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"question": f"{i} + 1 =", "answer": str(i + 1)}) for i in range(8)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def config_dict(tiny_model, rows, tmp_path) -> dict[str, Any]:
    """Return GRPO on four tasks a step, four runs each, two steps."""
    return {
        "project": "e2e",
        "name": "tiny",
        "checkpoint_root_dir": str(tmp_path / "checkpoints"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4, "optimizer": {"lr": 1e-3}},
        "model": {
            "model_path": str(tiny_model),
            "max_model_len": 96,
            "max_response_tokens": 8,
        },
        "buffer": {
            "batch_size": 4,
            "total_epochs": 1,
            "explorer_input": {
                "taskset": {
                    "name": "rows",
                    "path": str(rows),
                    "format": {"prompt_key": "question", "response_key": "answer"},
                    "default_workflow_type": "simple_workflow",
                    "default_reward_fn_type": "format_reward",
                }
            },
        },
        "explorer": {"eval_on_startup": False, "max_timeout": 60},
        "monitor": {"monitor_type": "jsonl"},
    }


@pytest.fixture
def write_yaml(tmp_path) -> Callable[[dict[str, Any]], Path]:
    def write(config: dict[str, Any], name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    return write


@pytest.fixture
def trinity(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command line as a user does, in ``tmp_path``."""

    def call(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trinity", *arguments],
            cwd=options.pop("cwd", tmp_path),
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"} | options.pop("env", {}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            **options,
        )

    return call
