"""Print what a rank of two holds on its pretend GPU in a step, and what it gathers.

PRETEND_CUDA=1 python tests/gpu_rehearsal/fsdp_memory.py
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from pathlib import Path

import torch
from pretend_cuda import Recorder
from torch import distributed, multiprocessing
from trinity.common.config.memory import ModelShape, TrainerMemory

sys.path.insert(0, str(Path(__file__).parent))
from gpu_parts import LORA, a_model, a_trainer, rows

VOCAB, NUM_RANKS = 8192, 2
SETTINGS = {
    "ddp": {"trainer_strategy": "ddp"},
    "float32": {},
    "bfloat16": {"precision": "bfloat16"},
    "bfloat16, recomputed": {"precision": "bfloat16", "gradient_checkpointing": True},
    "LoRA, bfloat16": {"precision": "bfloat16"},
    "bfloat16, offloaded": {"precision": "bfloat16", "offload_policy": True},
}


def measure(rank: int, folder: str, chosen: tuple[str, ...]) -> None:
    """Write the numbers of each setting; rank 0 does."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=NUM_RANKS,
    )
    path = next(Path(folder).glob("*-*-*"))
    found = {name: _measured(path, name) for name in chosen}
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()


def _measured(path: Path, name: str) -> dict[str, float]:
    gc.collect()
    before = torch.cuda.memory_allocated()
    made = a_trainer(
        path,
        trainer={"trainer_strategy": "fsdp2", "prefix_sharing": "off", **SETTINGS[name]},
        lora=[LORA] if name.startswith("LoRA") else None,
        group=distributed.group.WORLD,
    )
    batch = [rows(8, prompt=16, response=48, vocab=VOCAB) for _ in range(2)]
    made.train_step(batch[0], step=1)
    rest = torch.cuda.memory_allocated() - before
    torch.cuda.reset_peak_memory_stats()
    with Recorder() as recorder:
        metrics = made.train_step(batch[1], step=2)
    peak = torch.cuda.max_memory_allocated() - before
    tokens = int(metrics["perf/tokens_computed"] / metrics["perf/num_micro_batches"])
    scored = tokens * 3 // 4  # prompts of 16 tokens, responses of 48
    settings = {"strategy": "fsdp2", **SETTINGS[name]}
    plan = TrainerMemory(
        shape=ModelShape.of(json.loads((path / "config.json").read_text())),
        num_ranks=NUM_RANKS,
        strategy=settings.get("trainer_strategy", "fsdp2"),
        precision=settings.get("precision", "float32"),
        recomputes=settings.get("gradient_checkpointing", False),
        offload_policy=settings.get("offload_policy", False),
    )
    made.close()
    return {
        "rest": rest,
        "planned rest": plan.at_rest,
        "peak": peak,
        "planned peak": plan.peak(tokens, scored=scored),
        "nccl": recorder.events.get("nccl_bytes", 0),
        "parameters": plan.shape.parameters,
    }


def measured(*chosen: str, layers: int = 12, hidden: int = 256) -> dict[str, dict[str, float]]:
    """Return the numbers of each setting, in bytes, of two processes."""
    with tempfile.TemporaryDirectory() as folder:
        a_model(Path(folder), layers=layers, hidden=hidden, vocab=VOCAB)
        multiprocessing.spawn(measure, args=(folder, chosen or tuple(SETTINGS)), nprocs=NUM_RANKS)
        found: dict[str, dict[str, float]] = json.loads((Path(folder) / "found.json").read_text())
    return found


if __name__ == "__main__":
    for name, numbers in measured(*sys.argv[1:]).items():
        each = {what: f"{size / 1e6:.1f} MB" for what, size in numbers.items()}
        print(f"{name}: {each}")
