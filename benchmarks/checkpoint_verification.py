"""Measure what the check of a checkpoint's manifest costs, beside the loading that follows it.

``python benchmarks/checkpoint_verification.py`` writes a small and a large checkpoint, and prints
the least CPU seconds of several checks and loads by turns, and their ratio. ``load`` is what a run
that goes on does with the files: the trainer's weights, optimizer, scheduler and random state.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers.utils.logging import disable_progress_bar
from trinity.common.config import Config
from trinity.common.config.model import ModelConfig
from trinity.runtime.record.checkpoint import check_files, write_manifest
from trinity.trainer.torch_trainer import TorchTrainer
from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {"small": (64, 2, 384), "large": (512, 6, 8192)}  # hidden width, layers, vocabulary


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--repeats", type=int, default=7, help="the least of so many is counted")
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    print("checkpoint   files        MB   check s    load s   check / load")
    for size in options.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{size:10} {_line(Path(folder), size, repeats=options.repeats)}", flush=True)


def _line(folder: Path, size: str, *, repeats: int) -> str:
    hidden, layers, vocab = SIZES[size]
    model = make_tiny_model(folder / "model", hidden=hidden, layers=layers, vocab=vocab)
    config = Config(model=ModelConfig(model_path=str(model)))
    trainer = TorchTrainer(config, model_path=str(model), total_steps=10, seed=0)
    checkpoint = folder / "global_step_1"
    actor = checkpoint / "actor"
    actor.mkdir(parents=True)
    for parameter in trainer.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trainer._optimizer.step()  # its moments are most of a checkpoint
    trainer.save(actor)
    write_manifest(checkpoint)
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    checks, loads = [], []
    for _ in range(repeats):
        checks.append(_seconds(lambda: check_files(checkpoint)))
        loads.append(_seconds(lambda: trainer.load(actor)))
    check, load = min(checks), min(loads)
    return f"{len(files):7} {megabytes:9.1f} {check:9.4f} {load:9.4f} {check / load:12.1%}"


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
