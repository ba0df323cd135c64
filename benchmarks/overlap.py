"""What it brings that the trainer works while the explorer does: seconds of a step over Ray.

    python benchmarks/overlap.py [--steps 60] [--rounds 3]

The quickstart's task with ``sync_offset: 1`` over Ray, in turns and overlapped. Counted are the
medians of all steps but the first ten: what exploring and training take, the sync, and the whole
step from one sync to the next. With nothing else to wait for, an overlapped step takes at least
what the longer side takes and the sync; the sides share the machine's processors.

    python benchmarks/overlap.py --latency 0.5 --sigma 1 --steps 130

Runs that wait for a tool, lognormally: 0.5 s in the mean, sigma of the logarithm 1; 8 groups of 8
runs a step, a slot for each of 64 runs. Turns against groups in flight, with 2, 3 and 5 batches.
Counted is the mean step, as the length of one hangs on its slowest run. All styles draw the same
waits; "at most" is what they would bring if nothing but waiting took time (``flight_bound.py``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median
from typing import Any

import yaml
from flight_bound import longest_waits, times_as_fast

ROOT = Path(__file__).resolve().parent.parent
FIRST = 10  # steps that are start-up
TURNS, BATCHES = "fixed, in turns", (2, 3, 5)
WINDOW = 0.3  # the share of the groups in flight that may overtake
WAITS = """
import math
import random
import time

from trinity.common.workflows import WORKFLOWS, SimpleWorkflow


@WORKFLOWS.register_module("waits_for_a_tool")
class WaitsForATool(SimpleWorkflow):
    can_repeat = False

    def run(self):
        given = self.task.workflow_args
        mu = math.log(given["latency"]) - given["sigma"] ** 2 / 2
        dice = random.Random(f"{self.task.batch_id}/{self.task.task_id}/{self.run_id_base}")
        time.sleep(dice.lognormvariate(mu, given["sigma"]))
        return super().run()
"""
DRIVER = """
import os
import sys
os.environ["OMP_NUM_THREADS"] = "1"
from trinity.cli.program import program
from trinity.runtime.ray import build
if sys.argv.pop(1) == "turns":
    build.may_overlap = lambda *_: False
program()
"""


def main() -> None:
    """Run both by turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, help="seconds that a run waits for its tool")
    parser.add_argument("--local", action="store_true", help="with --latency: all in one process")
    parser.add_argument("--sigma", type=float, default=1.0, help="of the logarithm of them")
    options = parser.parse_args()
    if options.latency:
        with tempfile.TemporaryDirectory(prefix="overlap-") as folder:
            _compare_flights(Path(folder), options)
        return
    rows: dict[str, list[dict[str, float]]] = {"turns": [], "overlapped": []}
    with tempfile.TemporaryDirectory(prefix="overlap-") as folder:
        config = _inputs(Path(folder), steps=options.steps)
        for number in range(options.rounds):
            for kind in sorted(rows, reverse=bool(number % 2)):
                rows[kind].append(_run(Path(folder), config, kind, number))
    mids = {
        kind: {name: median(run[name] for run in runs) for name in runs[0]}
        for kind, runs in rows.items()
    }
    explore_s = mids["turns"]["explore"]  # overlapped, it cannot be told from the trainer's part
    print("| sides | explore s | train s | sync s | step s | step / (longer side + sync) |")
    print("|---|---|---|---|---|---|")
    for kind, mid in mids.items():
        least = max(explore_s, mid["train"]) + mid["sync"]
        seconds = " | ".join(f"{mid[name]:.3f}" for name in ("train", "sync", "step"))
        print(f"| {kind} | {explore_s:.3f} | {seconds} | {mid['step'] / least:.2f} |")
    steps = {kind: median(run["step"] for run in runs) for kind, runs in rows.items()}
    print(f"a step in turns takes {steps['turns'] / steps['overlapped']:.2f} x as long")


def _inputs(folder: Path, *, steps: int) -> Path:
    prepare = ROOT / "examples/quickstart/prepare.py"
    subprocess.run([sys.executable, prepare, "--folder", folder / "quickstart_run"], check=True)
    config = yaml.safe_load((ROOT / "examples/quickstart/quickstart.yaml").read_text())
    del config["stages"]
    config["buffer"]["total_steps"] = steps
    config["explorer"] = config.get("explorer", {}) | {"eval_interval": 10**6}
    config["synchronizer"] = {"sync_offset": 1}
    path = folder / "overlap.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def _compare_flights(folder: Path, options: argparse.Namespace) -> None:
    config = _inputs(folder, steps=options.steps)
    _let_runs_wait(folder, config, latency=options.latency, sigma=options.sigma)
    print(
        "| style | step s | x as fast | at most | age/max | allowed | idle slots | dropped "
        "| overtaken |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    waits = longest_waits(options.steps, latency=options.latency, sigma=options.sigma)
    before = 0.0
    for batches in (0, *BATCHES):
        one = _flight(folder, config, batches, more=["--local"] if options.local else [])
        before = before or one["step"]
        kind = f"fully_async, {batches} batches" if batches else TURNS
        ages = f"{one['age']:.0f} | {one['allowed']:.0f}" if batches else "0 | 0"
        most = times_as_fast(waits, batches=batches, window=WINDOW, first=FIRST) if batches else 1.0
        print(
            f"| {kind} | {one['step']:.2f} | {before / one['step']:.2f} | {most:.2f} | {ages} "
            f"| {one['idle']:.2f} | {one['dropped']:.0f} | {one['overtaken']:.2f} |",
            flush=True,
        )


def _let_runs_wait(folder: Path, config: Path, *, latency: float, sigma: float) -> None:
    (folder / "plugins").mkdir()
    (folder / "plugins" / "waits.py").write_text(WAITS)
    values = yaml.safe_load(config.read_text())
    values["algorithm"]["repeat_times"] = values["buffer"]["batch_size"] = 8
    values["buffer"].pop("train_batch_size", None)
    values["buffer"]["explorer_input"]["taskset"] |= {
        "default_workflow_type": "waits_for_a_tool",
        "workflow_args": {"latency": latency, "sigma": sigma},
    }
    del values["buffer"]["explorer_input"]["eval_tasksets"]
    values["explorer"] |= {"runner_per_model": 64}
    values["trainer"] = values.get("trainer", {}) | {"save_interval": 10**6}
    config.write_text(yaml.safe_dump(values))


def _flight(folder: Path, config: Path, batches: int, *, more: list[str]) -> dict[str, float]:
    """Return the means of a run with so many batches in flight; 0: in turns."""
    settings = ["synchronizer.sync_offset=0"]
    if batches:
        settings += ["synchronizer.sync_style=fully_async"]
        settings += [f"explorer.max_inflight_batches={batches}", f"explorer.window={WINDOW}"]
    rows = _rows(folder, config, "turns", f"flight-{batches}", settings, more=more)

    def values(role: str, metric: str) -> list[float]:
        return [row[metric] for row in rows if row["role"] == role and metric in row] or [0.0]

    capacity = 8 * batches
    return {
        "step": mean(values("synchronizer", "time/step_s")),
        "age": max(values("trainer", "age/max")),
        "allowed": (capacity + max(1, int(WINDOW * capacity)) - 2) // 8,
        "idle": mean(values("explorer", "idle/slots")),
        "dropped": sum(values("explorer", "groups/dropped")),
        "overtaken": mean(values("explorer", "groups/overtaken")),
    }


def _run(folder: Path, config: Path, kind: str, number: int) -> dict[str, float]:
    rows = _rows(folder, config, kind, f"{kind}-{number}", [])

    def mid(role: str, metric: str) -> float:
        return median(row[metric] for row in rows if row["role"] == role and metric in row)

    return {
        "explore": mid("explorer", "time/rollout_s"),
        "train": mid("trainer", "time/train_s"),
        "sync": mid("synchronizer", "time/sync_s"),
        "step": mid("synchronizer", "time/step_s"),
    }


def _rows(
    folder: Path,
    config: Path,
    kind: str,
    name: str,
    settings: list[str],
    *,
    more: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Make a run and return the metrics of its steps but for the first."""
    command = [sys.executable, "-c", DRIVER, kind, "run", "--config", str(config)]
    settings = [f"name={name}", f"checkpoint_root_dir={folder / 'runs'}", *settings]
    command += more or []
    command += [part for setting in settings for part in ("--set", setting)]
    if (folder / "plugins").exists():
        command += ["--plugin-dir", str(folder / "plugins")]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    lines = (folder / "runs/quickstart" / name / "monitor/metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["step"] > FIRST]


if __name__ == "__main__":
    main()
