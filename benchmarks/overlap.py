"""What it brings that the trainer works while the explorer does: seconds of a step over Ray.

    python benchmarks/overlap.py [--steps 60] [--rounds 3]

The quickstart's task with ``sync_offset: 1`` over Ray, in turns and overlapped. Counted are the
medians of all steps but the first ten: what exploring and training take, the sync, and the whole
step from one sync to the next. With nothing else to wait for, an overlapped step takes at least
what the longer side takes and the sync; the sides share the machine's processors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import yaml

ROOT = Path(__file__).resolve().parent.parent
FIRST = 10  # steps that are start-up
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
    options = parser.parse_args()
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


def _run(folder: Path, config: Path, kind: str, number: int) -> dict[str, float]:
    name = f"{kind}-{number}"
    command = [sys.executable, "-c", DRIVER, kind, "run", "--config", str(config)]
    command += ["--set", f"name={name}", "--set", f"checkpoint_root_dir={folder / 'runs'}"]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    lines = (folder / "runs/quickstart" / name / "monitor/metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["step"] > FIRST]

    def mid(role: str, metric: str) -> float:
        return median(row[metric] for row in rows if row["role"] == role and metric in row)

    return {
        "explore": mid("explorer", "time/rollout_s"),
        "train": mid("trainer", "time/train_s"),
        "sync": mid("synchronizer", "time/sync_s"),
        "step": mid("synchronizer", "time/step_s"),
    }


if __name__ == "__main__":
    main()
