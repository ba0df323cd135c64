"""The undamaged configurations of the fuzz: the shipped examples, and one that names much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]


def bases(folder: Path, *, model: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the shipped examples and a few more, all with a model and rows that are there."""
    rows = folder / "rows.jsonl"
    lines = [json.dumps({"question": f"{n}+1=", "answer": str(n + 1)}) for n in range(8)]
    rows.write_text("\n".join(lines) + "\n")
    if model is None:
        model = folder / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text('{"max_position_embeddings": 4096}')
        (model / "tokenizer.json").write_text("{}")
    found: dict[str, dict[str, Any]] = {
        "small": small(model, rows, folder),
        "ledger": with_ledger(small(model, rows, folder), folder),
        "served": served(small(model, rows, folder), folder),
    }
    for file in sorted((ROOT / "examples").glob("*/*.yaml")):
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        settings["model"]["model_path"] = str(model)
        settings["checkpoint_root_dir"] = str(folder / "checkpoints")
        settings.pop("stages", None)
        inputs = settings["buffer"]["explorer_input"]
        if "default_reward_fn_type" in inputs:
            inputs["default_reward_fn_type"] = "math_reward"
        for taskset in [inputs.get("taskset"), *inputs.get("eval_tasksets", [])]:
            if taskset is not None:
                taskset["path"] = str(rows)
                taskset["default_workflow_type"] = "math_workflow"
                taskset["format"] = {"prompt_key": "question", "response_key": "answer"}
                taskset.pop("split", None)
                taskset.pop("workflow_args", None)
        found[file.stem] = settings
    return found


def with_ledger(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a configuration that keeps its experiences in a ledger, and names all of its keys."""
    settings["name"] = "ledger"
    settings["buffer"]["trainer_input"]["experience_buffer"] = {
        "name": "between",
        "storage_type": "sql",
        "path": f"sqlite:///{folder}/ledger.db",
        "keep_bodies": "untrained",
        "keep_steps": 100,
        "max_retry_times": 1,
        "max_retry_interval": 1,
        "max_read_timeout": 60,
    }
    return settings


def served(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a configuration of a service, which has no tasks."""
    settings |= {"name": "served", "mode": "serve", "continue_from_checkpoint": True}
    del settings["buffer"]["explorer_input"]
    settings["explorer"] |= {
        "db_url": f"sqlite:///{folder}/serve.db",
        "listen_address": "127.0.0.1",
        "proxy_port": 0,
        "keep_runs_s": 3600,
    }
    return settings


def small(model: Path, rows: Path, folder: Path) -> dict[str, Any]:
    """Return a configuration that names much and trains one step on a tiny model."""
    taskset = {
        "name": "rows",
        "path": str(rows),
        "default_workflow_type": "math_workflow",
        "default_reward_fn_type": "format_reward",
        "format": {"prompt_key": "question", "response_key": "answer"},
        "rollout_args": {"temperature": 0.9, "max_tokens": 6},
        "data_selector": {"selector_type": "shuffle", "seed": 3},
    }
    return {
        "mode": "both",
        "project": "fuzz",
        "name": "small",
        "seed": 7,
        "checkpoint_root_dir": str(folder / "checkpoints"),
        "continue_from_checkpoint": False,
        "algorithm": {
            "algorithm_type": "grpo",
            "repeat_times": 2,
            "optimizer": {"lr": 1e-3, "betas": [0.9, 0.99]},
            "policy_loss_fn_args": {"clip_range": 0.3},
            "kl_loss_fn": "none",
        },
        "model": {"model_path": str(model), "max_model_len": 96, "max_response_tokens": 8},
        "cluster": {"node_num": 1, "gpu_per_node": 1},
        "buffer": {
            "batch_size": 2,
            "total_steps": 1,
            "explorer_input": {"taskset": taskset},
            "trainer_input": {"experience_buffer": {"storage_type": "queue", "capacity": 10}},
        },
        "explorer": {"eval_interval": 10, "runner_per_model": 4, "max_timeout": 60},
        "trainer": {"save_interval": 5, "grad_clip": 1.0},
        "synchronizer": {"sync_method": "nccl", "sync_interval": 1, "sync_timeout": 60},
        "monitor": {"monitor_type": "jsonl"},
        "log": {"level": "INFO"},
    }
