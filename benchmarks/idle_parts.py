"""Parts that answer at once or sleep, and a clock of the driver: what costs CPU is Trinity's own.

driver_ceiling.py    a rollout waits for a tool (asleep), asks the engine once and is scored
simulated_runs.py    a rollout with a long tail, and a train step, are asleep
"""

# ruff: noqa: D101, D102 -- what they override is documented

from __future__ import annotations

import functools
import importlib
import json
import os
import random
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from trinity.common.ports import (
    Completion,
    Monitor,
    RolloutEngine,
    Trainer,
    WeightSnapshot,
    WeightVersion,
)
from trinity.common.workflows import WORKFLOWS, SimpleWorkflow
from trinity.extend import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ENGINES = Registry("idle engines", kind="rollout_engine")
TRAINERS = Registry("idle trainers", kind="trainer")
MONITORS = Registry("clocks", kind="monitor")
ROLLOUT_S, SIGMA, TRAIN_S = 2.0, 0.5, 4.0  # of what sleeps
_EXPLORER = "trinity.explorer"
LAYERS = {  # what is counted as what; a call within another is counted once, as the inner one
    "scheduler": [
        (f"{_EXPLORER}.scheduler:Scheduler", ["begin_all", "ended", "_ended"]),
        ("trinity.runtime.ray.dispatcher:Dispatcher", ["begin", "ended"]),
    ],
    "Ray": [("trinity.runtime.ray.dispatcher:Dispatcher", ["_poll"])],
    "workflow": [(f"{_EXPLORER}.runner:Runner", ["run"])],
    "tasks": [("trinity.buffer.task_source:TaskSource", ["read"])],
    "explorer": [(f"{_EXPLORER}.continuous:ContinuousExplorer", ["admit", "_end", "take"])],
    "buffer": [
        (
            f"{_EXPLORER}.rollout_buffer:RolloutBuffer",
            [
                *("begin", "finish", "ready_groups", "consume_groups", "num_overtaken"),
                *("off_policy_steps", "weights_synced", "num_rows"),
            ],
        )
    ],
    "pipeline": [("trinity.buffer.pipeline:ExperiencePipeline", ["process"])],
    "storage": [
        ("trinity.runtime.group_storage:GroupStorage", ["write", "take", "read"]),
        ("trinity.runtime.group_storage:LedgerGroupStorage", ["write", "take", "read"]),
    ],
    "trainer": [("trinity.runtime.ray.remote_trainer:RemoteTrainer", ["train_step"])],
    "records": [("trinity.runtime.observers:Observers", ["explored", "trained", "synced"])],
    "checkpoint": [("trinity.runtime.saver:Saver", ["save"])],
}


@WORKFLOWS.register_module("waits_for_a_tool")
class WaitsForATool(SimpleWorkflow):
    can_repeat = False

    def run(self) -> Any:
        dice = random.Random(f"{self.task.batch_id}/{self.task.task_id}/{self.run_id_base}")
        time.sleep(self.task.workflow_args["wait_s"] * dice.uniform(0.5, 1.5))
        return super().run()


@WORKFLOWS.register_module("sleeps")
class Sleeps(SimpleWorkflow):
    can_repeat = False

    def run(self) -> Any:
        task = self.task
        time.sleep(rollout_s(task.batch_id, task.task_id, self.run_id_base))
        return super().run()


def rollout_s(batch: object, task: object, run: int) -> float:
    """Return how long a rollout sleeps, the same in each run."""
    dice = random.Random(f"{batch}/{task}/{run}")
    return ROLLOUT_S * dice.lognormvariate(-(SIGMA**2) / 2, SIGMA)


@ENGINES.register_module("answers_at_once")
class AnswersAtOnce(RolloutEngine):
    """Samples the same eight tokens each time."""

    version = WeightVersion(0)

    def submit(self, request: Any) -> Future[list[Completion]]:
        future: Future[list[Completion]] = Future()
        one = Completion(
            token_ids=(5, 6, 7, 8, 5, 6, 7, 8),
            logprobs=(-0.5,) * 8,
            finish_reason="stop",
            weight_version=self.version,
        )
        future.set_result([one] * request.n)
        return future

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        self.version = snapshot.version


@TRAINERS.register_module("trains_nothing")
class TrainsNothing(Trainer):
    def __init__(self, config: Any) -> None:
        self._version = 0

    def train_step(self, experiences: Sequence[Any], *, step: int) -> dict[str, float]:
        self._version = step
        return {}

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        tensors = {"lm_head.weight": torch.zeros(1)}
        return WeightSnapshot(version=WeightVersion(self._version), tensors=tensors)

    def save(self, directory: Path) -> None:
        (directory / "huggingface").mkdir(parents=True, exist_ok=True)

    def load(self, directory: Path) -> None:
        raise NotImplementedError("a measurement does not go on")


@TRAINERS.register_module("sleeps")
class SleepingTrainer(TrainsNothing):
    def train_step(self, experiences: Sequence[Any], *, step: int) -> dict[str, float]:
        time.sleep(TRAIN_S)
        return super().train_step(experiences, step=step) | {"clock_s": time.monotonic()}


@MONITORS.register_module("driver_clock")
class DriverClock(Monitor):
    """Writes the CPU seconds of the driver, and its memory, after each wave of rollouts.

    Args:
        directory: of the run's metrics.
        role: of the part that it hears.
        every: train steps of a wave.
    """

    def __init__(self, directory: Path, role: str, every: int) -> None:
        self._path, self._is_for, self._every = directory / "clock.jsonl", role == "trainer", every
        directory.mkdir(parents=True, exist_ok=True)
        self._base = rss()  # before the first rollout
        if self._is_for:
            watch_layers()

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        if self._is_for and step % self._every == 0:
            row = {"step": step, "cpu_s": time.process_time(), "rss": rss(), "layers": {**_SECONDS}}
            row |= {"base": self._base, "below_s": cpu_below()}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def rss() -> int:
    """Return the bytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_below() -> float:
    """Return the CPU seconds of the living processes below this one, as far as they are known."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(s for pid, s in seconds.items() if pid != os.getpid() and _is_below(pid, parents))


def _is_below(pid: int, parents: Mapping[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


_SECONDS: dict[str, float] = {}
_LOCAL = threading.local()
_LOCK = threading.Lock()


def watch_layers() -> None:
    """Count the CPU seconds of each layer from now on."""
    for layer, classes in LAYERS.items():
        for place, methods in classes:
            module, _, name = place.partition(":")
            cls = getattr(importlib.import_module(module), name)
            for method in methods:
                setattr(cls, method, _counted(layer, getattr(cls, method)))


def _counted(layer: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        outer = getattr(_LOCAL, "inner_s", 0.0)
        _LOCAL.inner_s, began = 0.0, time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            used_s = time.thread_time() - began
            with _LOCK:
                _SECONDS[layer] = _SECONDS.get(layer, 0.0) + used_s - _LOCAL.inner_s
            _LOCAL.inner_s = outer + used_s

    return counted
