"""What a sync of weights from the trainer to two engines costs, by each way, on one machine.

    OMP_NUM_THREADS=1 python benchmarks/weight_sync.py [--layers 14] [--rounds 5]
    ... --ranks 2 --dtype bfloat16 --methods gloo --bucket-mb 64     # two ranks of fsdp2

Starts the rooms of a run over Ray once (a model of 99.4M parameters in float32, 398 MB), and syncs
by each way in turn, every second round in the other order. Nothing is trained in between. CPU is
what the rooms' processes, the driver and Ray's own used meanwhile; memory is the most that Linux
says is shared (``Shmem``: Ray's object store and what ``ipc`` shares) above what there was before,
and the peak of what each process holds during the sync (``VmHWM``) above what it held before the
first one.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from grpo_tasks.cpu_clock import processes_below, used_seconds

ROOMS = ("trainer", "engine-0", "engine-1")  # the trainer's first rank


class MeasuredError(Exception):
    """The rooms did what they were started for."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one sync, in seconds."""

    wall_s: float
    cpu_s: dict[str, float]  # by room; "others": the driver's and Ray's own
    shared_mb: float
    peak_mb: dict[str, float]  # by room

    @property
    def all_s(self) -> float:
        """Return the CPU of all of them."""
        return sum(self.cpu_s.values())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=14, help="7.1M parameters each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["memory", "gloo", "ipc"])
    parser.add_argument("--ranks", type=int, default=1, help="of the trainer; fsdp2 from 2")
    parser.add_argument("--dtype", default="float32", help="that engines compute in")
    parser.add_argument("--bucket-mb", type=int, default=1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        config = a_run(Path(name), num_layers=options.layers)
        config.trainer.num_ranks = options.ranks
        config.trainer.trainer_strategy = "fsdp2" if options.ranks > 1 else "ddp"
        config.explorer.rollout_model.dtype = options.dtype
        config.explorer.rollout_model.weight_sync_buffer_size = options.bucket_mb
        measured = costs(config, methods=options.methods, num_rounds=options.rounds)
    print(table(measured))


def a_run(folder: Path, *, num_layers: int) -> Any:
    """Return the configuration of a run with two engines."""
    from trinity.common.config import Config
    from trinity_testing.tiny import make_tiny_model

    model = make_tiny_model(folder / "model", hidden=768, layers=num_layers, heads=12)
    rows = [{"question": f"{n} + 1 =", "answer": str(n + 1)} for n in range(8)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    taskset = {
        "name": "rows", "path": str(folder / "rows.jsonl"),
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "simple_workflow", "default_reward_fn_type": "math_reward",
    }  # fmt: skip
    return Config.model_validate({
        "project": "syncs", "name": "syncs", "audit": "off",
        "checkpoint_root_dir": str(folder / "runs"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 2},
        "model": {"model_path": str(model), "max_model_len": 96, "max_response_tokens": 16},
        "buffer": {
            "batch_size": 2, "total_steps": 1, "explorer_input": {"taskset": taskset},
        },
        "explorer": {"rollout_model": {"engine_num": 2}},
        "synchronizer": {"sync_timeout": 600},
        "monitor": {"monitor_type": "jsonl"},
    })  # fmt: skip


def costs(config: Any, *, methods: list[str], num_rounds: int) -> dict[str, list[Cost]]:
    """Return what each way cost, round by round; the first of each, which warms up, is left out."""
    from trinity.runtime import run as running

    measured: dict[str, list[Cost]] = {method: [] for method in methods}

    def stage(config: Any, *, build: Any, **options: Any) -> None:
        from trinity.extend import get_manager

        parts = build(config, manager=get_manager(), **options)
        try:
            syncs = {method: sync_of(parts, method) for method in methods}
            pids = pids_of(parts)
            held = {name: status(pid, "VmRSS") for pid, name in pids.items()}
            for number in range(1 + num_rounds):
                for method in methods if number % 2 == 0 else reversed(methods):
                    cost = one(parts, syncs[method], held=held)
                    print(f"{method:7} {line(cost)}" + " (first)" * (not number), flush=True)
                    measured[method] += [cost] if number else []
        finally:
            parts.close()
        raise MeasuredError

    running.run_stage = stage
    with suppress(MeasuredError):
        running.run(config)
    return measured


def sync_of(parts: Any, method: str) -> Any:
    """Return what brings weights to the engines that there are by another way."""
    from trinity.runtime.ray.weight_sync import RemoteSync

    config = copy.deepcopy(parts.config)
    config.synchronizer.sync_method = method
    return RemoteSync(
        config, parts.manager, engines=parts.sync._engines, sender=parts.trainer.sender
    )


def pids_of(parts: Any) -> dict[int, str]:
    """Return the rooms by their processes."""
    names = {room.facts().pid: room.name for room in parts.workers._handles}
    return {pid: "trainer" if name == "trainer-0" else name for pid, name in names.items()}


def status(pid: int, field: str) -> float:
    """Return a field of a process's status, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(field))


def one(parts: Any, sync: Any, *, held: dict[str, float]) -> Cost:
    """Return what one sync cost."""
    pids = pids_of(parts)
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
    before, watch = used(), SharedMemory()
    began = time.perf_counter()
    sync.sync(lambda: parts.trainer.snapshot(copy=False))
    wall_s = time.perf_counter() - began
    shared_mb = watch.most_mb()
    peak_mb = {name: status(pid, "VmHWM") - held[name] for pid, name in pids.items()}
    cpu_s = dict.fromkeys((*ROOMS, "others"), 0.0)
    for pid, used_s in used().items():
        name = pids.get(pid, "")
        cpu_s[name if name in ROOMS else "others"] += used_s - before.get(pid, 0.0)
    sync._latest = None  # and Ray's copy of them
    time.sleep(1.0)
    return Cost(wall_s, cpu_s, shared_mb, peak_mb)


def used() -> dict[int, float]:
    """Return the CPU seconds of this process and all below it, by process."""
    found = {}
    for pid in processes_below(os.getpid()):
        with suppress(OSError):  # it has just ended
            found[pid] = used_seconds(pid)
    return found


class SharedMemory:
    """Watches how much the machine shares."""

    def __init__(self) -> None:
        self._before = self._most = _shared_mb()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def most_mb(self) -> float:
        """Return the most there was more than at the start; ends the watch."""
        self._ends.set()
        self._thread.join(1.0)
        return max(self._most, _shared_mb()) - self._before

    def _watch(self) -> None:
        while not self._ends.wait(0.01):
            self._most = max(self._most, _shared_mb())


def _shared_mb() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith("Shmem:")]
    return int(found.split()[1]) / 1000


def line(cost: Cost) -> str:
    """Return the cost as text."""
    parts = ", ".join(f"{name} {used_s * 1000:.0f}" for name, used_s in cost.cpu_s.items())
    peaks = ", ".join(f"{name} {cost.peak_mb[name]:.0f}" for name in ROOMS)
    return (
        f"{cost.wall_s * 1000:6.0f} ms, CPU {cost.all_s * 1000:5.0f} ms ({parts}), "
        f"{cost.shared_mb:.0f} MB shared, peak MB: {peaks}"
    )


def table(measured: dict[str, list[Cost]]) -> str:
    """Return the medians, and each round's ratio to the first way."""
    lines = ["", "medians, in ms:", "| | trainer | each engine | others | all | wall | shared MB |"]
    lines.append("|---|---|---|---|---|---|---|")
    for method, all_of_it in measured.items():
        parts = {
            name: median(cost.cpu_s[name] for cost in all_of_it) * 1000
            for name in (*ROOMS, "others")
        }
        engines = (parts["engine-0"] + parts["engine-1"]) / 2
        lines.append(
            f"| `{method}` | {parts['trainer']:.0f} | {engines:.0f} | {parts['others']:.0f} "
            f"| {median(cost.all_s for cost in all_of_it) * 1000:,.0f} "
            f"| {median(cost.wall_s for cost in all_of_it) * 1000:,.0f} "
            f"| {median(cost.shared_mb for cost in all_of_it):.0f} |"
        )
    first, *others = measured
    for method in others:
        pairs = list(zip(measured[method], measured[first], strict=True))
        cpu = [one.all_s / two.all_s for one, two in pairs]
        wall = [one.wall_s / two.wall_s for one, two in pairs]
        lines.append(
            f"{method} / {first}: CPU {median(cpu):.2f} ({', '.join(f'{r:.2f}' for r in cpu)}), "
            f"wall {median(wall):.2f} ({', '.join(f'{r:.2f}' for r in wall)})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
