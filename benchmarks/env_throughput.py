r"""Measure episodes and steps a second of any workflow that plays an environment, without a model.

    python benchmarks/env_throughput.py --workflow webshop_workflow --rows test.jsonl \
        --prompt-key task_id --arguments '{"data": "shop", "max_env_steps": 8}'

The workflow is the one that trains. In place of a model, a player picks one of the actions that the
last page lists, at random; ``--parallel`` says how many runs go on at once, each in a thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config import FormatConfig
from trinity.common.workflows import Task
from trinity.extend import get_manager
from trinity_testing.engines import EchoEngine
from trinity_testing.scripted_model import model_over

if TYPE_CHECKING:
    from trinity.common.ports import GenerationRequest

LISTS = ("Available actions:\n", "Admissible commands:\n")
SEARCHES = ("search[coffee table]", "search[hair mask]", "search[canvas sneaker]")


class RandomPlayer(EchoEngine):
    """Says one of the actions that the last message lists, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)

    def answer(self, request: GenerationRequest) -> str:
        """Return an action, as the environments' prompts ask for it."""
        page = super().answer(request)
        listed = next((page.rpartition(name)[2] for name in LISTS if name in page), "look")
        action = self._rng.choice(listed.strip().splitlines())
        if action == "search[words]":
            action = self._rng.choice(SEARCHES)
        return f"<action>{action}</action>"


def main() -> None:
    """Print a line for each number of runs at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workflow", required=True, help="as in default_workflow_type")
    parser.add_argument("--rows", type=Path, required=True, help="the taskset, JSON lines")
    parser.add_argument("--prompt-key", default="task_id", help="as in format.prompt_key")
    parser.add_argument("--arguments", type=json.loads, default={}, help="workflow_args, as JSON")
    parser.add_argument("--episodes", type=int, default=64, help="of each measurement")
    parser.add_argument("--parallel", type=int, nargs="+", default=[1, 4, 16])
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()]
    tasks = [task_of(row, given) for row, _ in zip(itertools.cycle(rows), range(given.episodes))]
    for num_parallel in given.parallel:
        sys.stdout.write(f"{line_for(tasks, num_parallel)}\n")


def task_of(row: dict[str, Any], given: argparse.Namespace) -> Task:
    """Return the row as the explorer makes it a task."""
    return Task(
        workflow=given.workflow,
        raw_task=row,
        format_args=FormatConfig(prompt_key=given.prompt_key),
        workflow_args=given.arguments,
    )


def line_for(tasks: list[Task], num_parallel: int) -> str:
    """Return what that many runs at once come to."""
    with ThreadPoolExecutor(num_parallel) as pool:
        list(pool.map(played, tasks[:num_parallel], range(num_parallel)))  # opens what is shared
        began, cpu = time.perf_counter(), time.process_time()
        num_steps = sum(pool.map(played, tasks, range(len(tasks))))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return (
        f"{num_parallel:>2} at once: {len(tasks) / wall:>6.1f} episodes/s, "
        f"{num_steps / wall:>7.1f} steps/s; {cpu / num_steps * 1e3:.2f} ms of CPU a step here"
    )


def played(task: Task, seed: int) -> int:
    """Return how many steps one run took."""
    engine = RandomPlayer(seed)
    workflow = (
        get_manager()
        .find("workflow", str(task.workflow))
        .load()(task=task, model=model_over(engine), auxiliary_models=None)
    )
    try:
        workflow.run()
    finally:
        workflow.close()
    return engine.num_requests


if __name__ == "__main__":
    main()
