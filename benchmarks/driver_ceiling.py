"""How many rollouts at the same time one driver holds: CPU ms and bytes of each.

    python benchmarks/driver_ceiling.py [--sizes 100,1000,10000,20000] [--places local,ray]

A run of ``fully_async`` whose parts answer at once (``idle_parts.py``): groups of 5, and
each rollout waits for a tool, as long as it takes that all slots are taken. Two shapes: ``wide``,
where a train step takes half of what is in flight; and ``deep``, where it takes 20 groups however
many are in flight. Counted is the CPU time of the driver's process, not the clock, over two waves
of rollouts after a first one that is start-up; the layers' shares are of that time.
``--storage sql`` keeps the experiences in a ledger (SQLite).

Over Ray the rollouts run in two workers, and "others" is the CPU of all processes but the driver.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GROUP = 5  # rollouts of a group
DEEP = 20  # groups of a train step, where a batch is small beside what is in flight
WAVES = 2  # that are counted, after one that is not
WAIT_S, WAIT_OF_ONE_S = 0.3, 2e-3  # of a tool: always, and more for each rollout in flight


@dataclass(frozen=True, slots=True)
class Cost:
    """What a rollout costs at one size.

    Attributes:
        cpu_ms: of the driver, a rollout.
        others_ms: of all other processes, a rollout.
        kilobytes: of the driver's memory, for each rollout in flight.
        layers: the share of the driver's CPU that each layer takes, the largest first.
    """

    cpu_ms: float
    others_ms: float
    kilobytes: float
    layers: dict[str, float]


def main() -> None:
    """Measure each size in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,200,500,1000,2000,5000,10000,20000")
    parser.add_argument("--places", default="local,ray")
    parser.add_argument("--shapes", default="wide,deep")
    parser.add_argument("--storage", default="queue", choices=["queue", "sql"])
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(Path(options.one), local=options.places == "local")
        return
    print("| where | shape | rollouts | CPU ms | x twice | a CPU second | KB | others ms | most |")
    print("|---|---|---|---|---|---|---|---|---|")
    sizes = [int(size) for size in options.sizes.split(",")]
    for place, shape in itertools.product(options.places.split(","), options.shapes.split(",")):
        before: tuple[int, float] | None = None
        for size in sizes:
            cost = measured(size, place=place, shape=shape, storage=options.storage)
            print(row(cost, size, place=place, shape=shape, before=before), flush=True)
            parts = {name: f"{cost.cpu_ms * share:.3f}" for name, share in cost.layers.items()}
            print(f"  ms of each layer: {parts}", file=sys.stderr, flush=True)
            before = (size, size * cost.cpu_ms)


def row(cost: Cost, size: int, *, place: str, shape: str, before: tuple[int, float] | None) -> str:
    """Return a line of the table; ``before`` is the size of the line above, and its CPU."""
    times = "" if before is None else f"{growth(before, (size, size * cost.cpu_ms)):.2f}"
    most = ", ".join(f"{name} {share:.0%}" for name, share in list(cost.layers.items())[:3])
    return (
        f"| {place} | {shape} | {size:,} | {cost.cpu_ms:.2f} | {times} | {1000 / cost.cpu_ms:,.0f} "
        f"| {cost.kilobytes:.0f} | {cost.others_ms:.2f} | {most} |"
    )


def growth(before: tuple[int, float], now: tuple[int, float]) -> float:
    """Return how many times the CPU twice the rollouts take, from two sizes and their CPU.

    >>> growth((100, 50.0), (400, 200.0))
    2.0
    """
    return 2 ** (math.log(now[1] / before[1]) / math.log(now[0] / before[0]))


def measured(size: int, *, place: str, shape: str, storage: str) -> Cost:
    """Return what a rollout costs where so many are in flight."""
    with tempfile.TemporaryDirectory(prefix="ceiling-") as name:
        folder = Path(name)
        settings = settings_of(size, folder=folder, place=place, shape=shape, storage=storage)
        (folder / "run.json").write_text(json.dumps(settings))
        (folder / "plugins").mkdir()
        shutil.copy(HERE / "idle_parts.py", folder / "plugins")
        command = ["env", "OMP_NUM_THREADS=1", "RAY_USAGE_STATS_ENABLED=0"]
        command += [f"TRINITY_PLUGIN_DIRS={folder / 'plugins'}", sys.executable, __file__]
        command += ["--one", str(folder), "--places", place]
        log = folder / "log"
        with log.open("w") as output:
            done = subprocess.run(command, cwd=folder, stdout=output, stderr=output, check=False)
        clocks = list(folder.glob("runs/**/clock.jsonl"))
        if done.returncode or not clocks:
            raise SystemExit(f"the run with {size} rollouts failed:\n{log.read_text()[-3000:]}")
        rows = [json.loads(line) for line in clocks[0].read_text().splitlines()]
    return cost_of(rows, size=size, batch=settings["buffer"]["batch_size"])


def cost_of(rows: list[dict[str, Any]], *, size: int, batch: int) -> Cost:
    """Return the cost of a rollout, from the rows of the clock."""
    first, last = rows[0], rows[-1]
    num = (last["step"] - first["step"]) * batch * GROUP
    cpu_s = last["cpu_s"] - first["cpu_s"]
    used = {name: s - first["layers"].get(name, 0.0) for name, s in last["layers"].items()}
    most = sorted(used.items(), key=lambda item: -item[1])
    return Cost(
        cpu_ms=cpu_s / num * 1000,
        others_ms=(last["below_s"] - first["below_s"]) / num * 1000,
        kilobytes=(max(one["rss"] for one in rows) - first["base"]) / size / 1024,
        layers={name: seconds / cpu_s for name, seconds in most},
    )


def settings_of(size: int, *, folder: Path, place: str, shape: str, storage: str) -> dict[str, Any]:
    """Return the configuration of a run with so many rollouts in flight."""
    from trinity_testing.tiny import make_tiny_model

    groups = size // GROUP
    batch = max(1, groups // 2) if shape == "wide" else min(DEEP, groups)
    batches = groups // batch
    make_tiny_model(folder / "model")
    lines = [json.dumps({"question": f"{i} + 1 =", "answer": str(i + 1)}) for i in range(64)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    buffer = {"storage_type": storage, "name": "rows"}
    if storage == "sql":
        buffer["path"] = f"sqlite:///{folder}/ledger.db"
    num_workers = 2 if place == "ray" else 1
    return {
        "project": "ceiling",
        "name": "run",
        "checkpoint_root_dir": str(folder / "runs"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": GROUP, "kl_loss_fn": "none"},
        "model": {"model_path": str(folder / "model"), "max_model_len": 96},
        "buffer": {
            "batch_size": batch,
            "total_steps": batches * (1 + WAVES),
            "record_samples": False,
            "trainer_input": {"experience_buffer": buffer},
            "explorer_input": {
                "taskset": {
                    "name": "rows",
                    "path": str(folder / "rows.jsonl"),
                    "format": {"prompt_key": "question", "response_key": "answer"},
                    "default_workflow_type": "waits_for_a_tool",
                    "default_reward_fn_type": "math_reward",
                    "workflow_args": {"wait_s": WAIT_S + WAIT_OF_ONE_S * size},
                }
            },
        },
        "explorer": {
            "eval_on_startup": False,
            "eval_interval": 10**6,
            "max_timeout": 900,
            "max_inflight_batches": batches,
            "runner_per_model": size // num_workers,
            "rollout_model": {"engine_type": "answers_at_once", "engine_num": num_workers},
        },
        "synchronizer": {"sync_style": "fully_async", "sync_method": "memory"},
        "trainer": {"trainer_type": "trains_nothing", "save_interval": 10**6},
        "monitor": {"monitor_type": "driver_clock", "monitor_args": {"every": batches}},
        "audit": "off",
    }


def run_one(folder: Path, *, local: bool) -> None:
    """Make the run of a folder."""
    import trinity
    from trinity.common.config import Config

    settings = json.loads((folder / "run.json").read_text())
    trinity.run(Config.model_validate(settings), local=local)


if __name__ == "__main__":
    main()
