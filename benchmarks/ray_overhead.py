"""What a training step costs more over Ray than in one process: CPU seconds of all processes.

    python benchmarks/ray_overhead.py [--steps 80] [--rounds 5]

The second stage of the quickstart, with and without Ray, and beside them what Ray itself costs:
four actors, 12 calls and 4 MB of weights a step through the object store. A step's CPU is that of
the driver and of every process below it, from step 20 to the last, with one thread each.

A machine that others use is slower at one time than at another. So the rounds are short, each runs
all sides once, every second round in the other order, and what counts is the median of the rounds'
differences; how far the rounds lie apart stands beside it.

What Ray's own threads cost is measured apart: gRPC, timers, its loops and its daemons. A process
that waits looks for signals a hundred times a second, so they cost more where a step takes longer.
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
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import yaml
from grpo_tasks.cpu_clock import processes_below, used_seconds

ROOT = Path(__file__).resolve().parent.parent
FIRST = 20  # steps that are start-up
SIDES = ("local", "ray", "bare")
DAEMONS = ("raylet", "gcs_server")
OUR_THREADS = ("python", "ray::")  # how their names begin; Ray's are client.poll0, worker.io, ...
WORKS_IN_MAIN = ("trainer", "python", "ray::Part")  # in other rooms this thread is Ray's loop
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost a step, in seconds."""

    cpu_s: float
    wall_s: float
    ray_s: float  # of the CPU, that of Ray's own threads and daemons
    by_process: str


def main() -> None:
    """Run the sides in turn and print the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare_ray(options.bare, num_steps=options.steps)
        return
    sides = options.sides.split(",")
    measured: dict[str, list[Cost]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = [sys.executable, ROOT / "examples/quickstart/prepare.py"]
        subprocess.run(prepare, cwd=folder, check=True)
        for number in range(options.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                cost = run(side, folder, number=number, num_steps=options.steps)
                measured[side].append(cost)
                print(f"{side:6} {line(cost)}   {cost.by_process}", flush=True)
    print(table(measured))


def run(side: str, folder: Path, *, number: int, num_steps: int) -> Cost:
    """Return what a step of one side costs."""
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


def watch(process: subprocess.Popen, progress: Path, *, last: int) -> Cost:
    """Return what the steps between FIRST and ``last`` cost."""
    first: Usage | None = None
    while True:
        if process.poll() is not None:
            raise RuntimeError("the run ended before it was measured")
        time.sleep(0.05)
        step = last_step(progress)
        if first is None and step >= FIRST:
            first = Usage.of(process.pid, step)
        elif first is not None and step >= last:
            return Usage.of(process.pid, step).since(first)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has used up to a step."""

    step: int
    at_s: float
    by_process: dict[int, float]
    by_ray: dict[tuple[int, int], float]  # each of Ray's own threads

    @classmethod
    def of(cls, root: int, step: int) -> Usage:
        """Return what the living processes of the run have used."""
        pids = list(processes_below(root))
        has_ray = any(name_of(pid) in DAEMONS for pid in pids)
        own = {(p, thread): s for p in pids if has_ray for thread, s in threads_of_ray(p).items()}
        return cls(step, time.monotonic(), {pid: used_seconds(pid) for pid in pids}, own)

    def since(self, first: Usage) -> Cost:
        """Return what a step cost since then."""
        num = self.step - first.step
        used = {
            pid: (seconds - first.by_process.get(pid, 0.0)) / num
            for pid, seconds in self.by_process.items()
        }
        own = sum(used_s - first.by_ray.get(key, 0.0) for key, used_s in self.by_ray.items())
        most = sorted(used, key=lambda pid: -used[pid])
        parts = [f"{title(pid)} {used[pid] * 1000:.1f}" for pid in most if used[pid] > 3e-4]
        wall_s = (self.at_s - first.at_s) / num
        return Cost(sum(used.values()), wall_s, own / num, ", ".join(parts))


def threads_of_ray(pid: int) -> dict[int, float]:
    """Return the CPU seconds of those threads of a process that belong to Ray itself."""
    is_daemon, name = name_of(pid) in DAEMONS, title(pid)
    found = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        thread, number = fields[fields.index("(") + 1 : fields.rindex(")")], int(folder.name)
        is_loop = number == pid and not name.startswith(WORKS_IN_MAIN)
        if is_daemon or is_loop or not thread.startswith(OUR_THREADS):
            numbers = fields.rpartition(") ")[2].split()
            found[number] = (int(numbers[11]) + int(numbers[12])) / _TICKS
    return found


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


def line(cost: Cost) -> str:
    """Return a run's cost as text."""
    text = f"{cost.cpu_s * 1000:6.1f} ms CPU and {cost.wall_s * 1000:5.0f} ms a step"
    return text + (f", Ray's own threads {cost.ray_s * 1000:5.1f}" if cost.ray_s else "")


def table(measured: dict[str, list[Cost]]) -> str:
    """Return the medians, and the median of what Ray adds in each round."""
    lines = [""]
    for side, costs in measured.items():
        middle = Cost(
            cpu_s=median(cost.cpu_s for cost in costs),
            wall_s=median(cost.wall_s for cost in costs),
            ray_s=median(cost.ray_s for cost in costs),
            by_process="",
        )
        lines.append(f"{side:12} {line(middle)}")
    if {"local", "ray"} <= measured.keys():
        pairs = zip(measured["local"], measured["ray"], strict=True)
        added = sorted((ray.cpu_s - local.cpu_s) * 1000 for local, ray in pairs)
        each_round = ", ".join(f"{value:.0f}" for value in added)
        lines.append(f"{'ray - local':12} {median(added):6.1f} ms CPU a step ({each_round})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
