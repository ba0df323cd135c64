"""How many experiences a CPU second carries from an explorer over the buffer to a trainer.

    python benchmarks/queue_throughput.py [--batches 40] [--rows 512] [--tokens 600]

Three real processes: one makes batches and hands them on as a runner does, the driver stores and
samples, one reads as the trainer's room does. Counted is the CPU of all three and of Ray's own
processes, less what making the experiences costs (measured alone).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_tasks.cpu_clock import processes_below, used_seconds

WARM_UP = 5  # batches


@dataclass
class Writer:
    """Makes experiences."""

    context: Any
    rows: int
    tokens: int

    def __post_init__(self) -> None:
        import torch

        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(0, 150_000, (self.rows, self.tokens), generator=generator)
        self.numbers = torch.randn(self.rows, self.tokens, generator=generator)

    def packed(self, step: int) -> Any:
        """Return one batch as it travels."""
        from trinity.common.wire import encode

        return encode(self.make(step))

    def make_only(self, num_batches: int) -> float:
        """Return the CPU seconds of making so many batches."""
        began = time.process_time()
        for step in range(num_batches):
            self.make(step)
        return time.process_time() - began

    def make(self, step: int) -> list:
        """Return a batch whose experiences share no memory."""
        from trinity.common.experience import EID, Experience

        prompt = self.tokens // 6
        words = "seven and five and nine are twenty-one " * (self.tokens // 12)
        return [
            Experience(
                tokens=self.ids[row].clone(),
                prompt_length=prompt,
                eid=EID(step, row // 8, row % 8),
                logprobs=self.numbers[row, prompt:].clone(),
                action_mask=[True] * (self.tokens - prompt),
                reward=row / self.rows,
                advantages=self.numbers[row, prompt:].clone(),
                returns=self.numbers[row, prompt:].clone(),
                info={"model_version": step, "row": row},
                metrics={"accuracy": row / self.rows},
                prompt_text=f"{row} {words[:400]}",
                response_text=f"{row} {step} {words}",
            )
            for row in range(self.rows)
        ]


@dataclass
class Reader:
    """Reads batches as the trainer's room does."""

    context: Any

    def train_step(self, packet: Any) -> int:
        """Return how many experiences came."""
        return len(packet.decode())


def main() -> None:
    """Print the rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=600)
    options = parser.parse_args()
    from trinity.common.config import Config
    from trinity.runtime.ray.cluster import cluster

    config = Config()
    with tempfile.TemporaryDirectory() as folder, cluster(config, say=print) as ground:
        used_s, making_s = measure(config, Path(folder), ground.namespace, options)
    num = options.batches * options.rows
    rate = num / (used_s - making_s)
    print(f"{num} experiences of {options.tokens} tokens: {used_s:.2f} CPU s, of which making them")
    print(f"{making_s:.2f} s: {rate:,.0f} experiences a CPU second through the queue")


def measure(
    config: Any, folder: Path, namespace: str, options: argparse.Namespace
) -> tuple[float, float]:
    """Return the CPU seconds of all processes, and those of making the experiences."""
    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.sync_policy import policy_of
    from trinity.explorer.rollout_buffer import RolloutBuffer
    from trinity.extend import get_manager
    from trinity.runtime.assembly import make_ready_source, make_storage, make_strategy
    from trinity.runtime.ray.worker_handle import start_worker
    from trinity.runtime.ray.worker_spec import WorkerSpec
    from trinity.runtime.record.rundir import RunDir

    config.buffer.train_batch_size = options.rows
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig()
    config.algorithm.sample_strategy, config.algorithm.sample_strategy_args = "default", {}
    manager, rundir = get_manager(), RunDir(folder)
    passport = WorkerSpec.of(config, rundir=rundir, manager=manager, namespace=namespace)
    sizes = {"rows": options.rows, "tokens": options.tokens}
    writer = start_worker(passport, "writer", "queue_throughput:Writer", **sizes)
    reader = start_worker(passport, "reader", "queue_throughput:Reader")
    storage = make_storage(config, manager, chat_format=None, rundir=rundir)
    rollouts = RolloutBuffer(policy_of(config), batch=options.rows)
    source = make_ready_source(storage, rollouts)
    strategy = make_strategy(config, manager, source=source, storage=storage, chat_format=None)
    carry = Carrier(writer, storage, rollouts, strategy, reader, options.rows)
    for step in range(WARM_UP):
        carry(step)
    making_s = writer.call("make_only", options.batches)
    began = total_s()
    for step in range(WARM_UP, WARM_UP + options.batches):
        carry(step)
    return total_s() - began, making_s


@dataclass
class Carrier:
    """Lets one batch go all the way."""

    writer: Any
    storage: Any
    rollouts: Any
    strategy: Any
    reader: Any
    num: int

    def __call__(self, step: int) -> None:
        """Carry it."""
        from trinity.common.wire import encode

        self.storage.write(self.writer.call("packed", step).held())
        self.rollouts.finish(self.rollouts.begin().number, self.num)
        experiences, _ = self.strategy.sample(step)
        if self.reader.call("train_step", encode(experiences)) != self.num:
            raise SystemExit(f"batch {step} did not arrive whole")


def total_s() -> float:
    """Return the CPU seconds of this process and all below it."""
    return sum(used_seconds(pid) for pid in processes_below(os.getpid()))


if __name__ == "__main__":
    main()
