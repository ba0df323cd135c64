"""Time the group advantages of a ready batch: ``python benchmarks/group_advantages.py``.

10,000 experiences of 64 response tokens, 8 runs a task. Prints the CPU time of each experience for
GRPO's advantage function, beside a loop over the groups that computes the same numbers in Python.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_EXPERIENCES = 10_000
NUM_TOKENS = 64
REPEAT_TIMES = 8
EPSILON = 1e-6
NUM_REPEATS = 15


def main() -> None:
    """Print the median of several calls, and the factor."""
    torch.set_num_threads(1)
    batch = a_batch()
    grpo = GRPOAdvantageFn(epsilon=EPSILON)
    vectorised = median_us(lambda: grpo(batch))
    advantages = batch["advantages"].clone()
    loop = median_us(lambda: in_a_loop(batch), num_repeats=3)
    difference = (advantages - in_a_loop(batch)).abs().max().item()
    print(f"{NUM_EXPERIENCES} experiences of {NUM_TOKENS} tokens, {REPEAT_TIMES} runs a task")
    print(f"grpo                   {vectorised:8.3f} us an experience")
    print(f"a loop over the groups {loop:8.3f} us an experience, {loop / vectorised:.1f} times")
    print(f"largest difference     {difference:.1e}")


def a_batch() -> ExperienceBatch:
    """Return the batch that the explorer would hand over."""
    generator = torch.Generator().manual_seed(7)
    rewards = torch.rand(NUM_EXPERIENCES, generator=generator).tolist()
    rows = [
        Experience(
            tokens=torch.ones(1 + NUM_TOKENS, dtype=torch.int64),
            reward=reward,
            logprobs=torch.zeros(NUM_TOKENS),
            action_mask=torch.ones(NUM_TOKENS, dtype=torch.bool),
            eid=EID(0, number // REPEAT_TIMES, number % REPEAT_TIMES),
        )
        for number, reward in enumerate(rewards)
    ]
    return ExperienceBatch.from_experiences(rows)


def in_a_loop(batch: ExperienceBatch) -> torch.Tensor:
    """Return the same advantages, group after group."""
    advantages_BR = torch.zeros_like(batch["token_level_rewards"])
    for rows in batch.groups().values():
        rewards = batch["rewards"][rows].double()
        scores = (rewards - rewards.mean()) / (rewards.std() + EPSILON)
        for row, score in zip(rows, scores.tolist(), strict=True):
            advantages_BR[row] = score * batch["action_mask"][row]
    return advantages_BR


def median_us(call: Callable[[], object], *, num_repeats: int = NUM_REPEATS) -> float:
    """Return the median CPU time of a call, in microseconds an experience."""
    call()
    times = []
    for _ in range(num_repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return statistics.median(times) / NUM_EXPERIENCES * 1e6


if __name__ == "__main__":
    main()
