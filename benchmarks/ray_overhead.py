"""What a training step costs more over Ray than in one process: CPU seconds of all processes.

    python benchmarks/ray_overhead.py [--steps 150] [--rounds 2]

The second stage of the quickstart, with and without Ray, and beside them what Ray itself costs:
four actors, 12 calls and 4 MB of weights a step through the object store. They take turns, with one
thread each. A step's CPU is that of the driver and of every process below it, from step 20 to the
last.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import yaml
from say_digit.cpu_clock import processes_below, used_seconds

ROOT = Path(__file__).resolve().parent.parent
FIRST = 20  # steps that are start-up
SIDES = ("local", "ray", "bare")


def main() -> None:
    """Run the sides in turn and print the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare_ray(options.bare, num_steps=options.steps)
        return
    sides = options.sides.split(",")
    measured: dict[str, list[float]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = [sys.executable, ROOT / "examples/quickstart/prepare.py"]
        subprocess.run(prepare, cwd=folder, check=True)
        for number in range(options.rounds):
            for side in sides:
                step_s, by_process = run(side, folder, number=number, num_steps=options.steps)
                measured[side].append(step_s)
                print(f"{side:6} {step_s * 1000:6.1f} ms CPU a step   {by_process}", flush=True)
    print(table(measured))


def run(side: str, folder: Path, *, number: int, num_steps: int) -> tuple[float, str]:
    """Return the CPU seconds of a step, and how they divide among the processes."""
    name = f"{side}{number}"
    progress = folder / "checkpoints/quickstart" / name / "monitor/metrics.jsonl"
    if side == "bare":
        progress = folder / name
        command = ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0", sys.executable, __file__]
        command += [f"--steps={num_steps}", f"--bare={progress}"]
    else:
        config = folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(quickstart(name, num_steps=num_steps)))
        program = "from trinity.cli.main import main; main()"
        command = [sys.executable, "-c", program, "run", f"--config={config}"]
        command += ["--local"] if side == "local" else []
    command = ["env", "OMP_NUM_THREADS=1", "RAY_USAGE_STATS_ENABLED=0", *command]
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            result = watch(process, progress, last=num_steps - 5)
        except RuntimeError:
            print((folder / f"{name}.log").read_text()[-3000:])
            raise
        finally:
            process.kill()  # Ray's processes end with their driver
            process.wait()
    return result


def quickstart(name: str, *, num_steps: int) -> dict:
    """Return the second stage of the quickstart as a run of its own, without evaluations."""
    config = yaml.safe_load((ROOT / "examples/quickstart/quickstart.yaml").read_text())
    del config["stages"], config["buffer"]["explorer_input"]["eval_tasksets"]
    config["name"] = name
    config["buffer"]["total_steps"] = num_steps
    config["explorer"] = {"eval_on_startup": False, "eval_interval": 0}
    config["monitor"] = {"monitor_type": "jsonl"}
    config["trainer"] = {"save_interval": 0}
    return config


def watch(process: subprocess.Popen, progress: Path, *, last: int) -> tuple[float, str]:
    """Return what the steps between FIRST and ``last`` cost."""
    first: tuple[int, dict[int, float]] | None = None
    while True:
        if process.poll() is not None:
            raise RuntimeError("the run ended before it was measured")
        time.sleep(0.05)
        step = last_step(progress)
        if first is None and step >= FIRST:
            first = step, usage(process.pid)
        elif first is not None and step >= last:
            break
    num, before, after = step - first[0], first[1], usage(process.pid)
    used = {pid: (after[pid] - before.get(pid, 0.0)) / num for pid in after}
    most = sorted(used, key=lambda pid: -used[pid])
    parts = [f"{title(pid)} {used[pid] * 1000:.1f}" for pid in most if used[pid] > 3e-4]
    return sum(used.values()), ", ".join(parts)


def usage(root: int) -> dict[int, float]:
    """Return the CPU seconds of each living process of the run."""
    return {pid: used_seconds(pid) for pid in processes_below(root)}


def title(pid: int) -> str:
    """Return what a process is: a room by the log it writes, others by their command."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = Path(os.readlink(link))
        if target.parent.name == "logs" and "checkpoints" in target.parts:
            return target.stem
    return name_of(pid)


def name_of(pid: int) -> str:
    """Return the first word of a command."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return next((Path(word.decode()).name for word in words if word), "?")[:16]


def last_step(progress: Path) -> int:
    """Return the last step that the run has noted."""
    if not progress.exists():
        return 0
    lines = progress.read_bytes().split(b"\n")[:-1]
    return json.loads(lines[-1])["step"] if lines else 0


def bare_ray(progress: Path, *, num_steps: int) -> None:
    """Step with four actors that do nothing: 12 calls, and weights from one to two others."""
    import numpy as np
    import ray

    class Part:
        def __init__(self) -> None:
            self.weights = np.zeros(1 << 20, dtype=np.float32)

        def call(self, value: object) -> int:
            return 0

        def take(self) -> object:
            return self.weights

    ray.init(
        num_cpus=4, include_dashboard=False, object_store_memory=256 << 20, log_to_driver=False
    )
    actors = [ray.remote(Part).options(num_cpus=0).remote() for _ in range(4)]
    batch = {"experiences": list(range(256))}
    with progress.open("w") as file:
        for step in range(1, num_steps + 1):
            for number in range(10):
                ray.get(actors[number % 4].call.remote(batch))
            weights = actors[0].take.remote()
            ray.get([actor.call.remote(weights) for actor in actors[1:3]])
            file.write(json.dumps({"step": step}) + "\n")
            file.flush()
            time.sleep(0.05)  # a step takes time
    time.sleep(5)


def table(measured: dict[str, list[float]]) -> str:
    """Return the medians and what Ray adds."""
    middle = {side: median(values) * 1000 for side, values in measured.items() if values}
    lines = [f"{side:18} {value:7.1f} ms CPU a step" for side, value in middle.items()]
    if {"local", "ray"} <= middle.keys():
        lines.append(f"{'ray - local':18} {middle['ray'] - middle['local']:7.1f} ms")
    return "\n".join(["", *lines])


if __name__ == "__main__":
    main()
