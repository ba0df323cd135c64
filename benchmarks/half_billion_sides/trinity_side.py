"""Steps of ``trinity run --local``, of the configuration that belongs to a cell of the table."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import trinity
from notes import note_times
from trinity.common.config import Config
from trinity.synchronizer.memory_sync import MemorySync
from trinity.trainer.torch_trainer import TorchTrainer


def main() -> None:
    """Run the steps of a cell."""
    given = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(given["threads"])
    os.environ["HALF_BILLION_CLOCK"] = given["clock"]  # noqa: TID251 -- for the reward's file
    os.environ["TRINITY_PLUGIN_DIRS"] = str(Path(__file__).parent / "parts")  # noqa: TID251
    note_times(TorchTrainer, "save", name="checkpoint", file=given["notes"])
    note_times(MemorySync, "sync", name="sync", file=given["notes"])
    trinity.run(Config.model_validate(settings_of(given)), local=True)


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration."""
    taskset = {
        "name": "rows",
        "path": f"{given['folder']}/rows.jsonl",
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "simple_workflow",
        "default_reward_fn_type": "timed_reward",
    }
    dtype = given["precision"]
    return {
        "project": "half_billion",
        "name": "run",
        "checkpoint_root_dir": given["folder"],
        "algorithm": {
            "algorithm_type": "grpo",
            "repeat_times": given["group"],
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
            "optimizer": {"lr": 1e-6},
        },
        "model": {
            "model_path": given["model"],
            "max_prompt_tokens": 2 * given["prompt"],
            "max_response_tokens": given["new_tokens"],
        },
        "buffer": {
            "batch_size": 1,
            "total_steps": given["steps"],
            "explorer_input": {"taskset": taskset},
        },
        "explorer": {"rollout_model": {"dtype": dtype}, "eval_interval": 10**6},
        "trainer": {"precision": dtype, "save_interval": 0, "save_hf_checkpoint": "never"},
        "synchronizer": {"sync_method": "memory"},
    }


if __name__ == "__main__":
    main()
