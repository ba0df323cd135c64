"""Where the time of a training step goes, read from the metrics of a run.

    python benchmarks/step_time.py checkpoints/quickstart/addition/grpo/monitor/metrics.jsonl

Prints the mean seconds of each part over all steps but the first three, and each part's share.
These are seconds on the clock: on a busy machine compare shares, or run it with nothing beside it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

PARTS = {  # metric: what it is
    "time/engine_s": "rollout: the engine's forwards and sampling",
    "time/workflow_s": "workflows: prompts, rewards, threads, experiences",
    "time/advantage_s": "advantages: a batch of the step, groups compared",
    "time/write_s": "write: into the buffer",
    "time/sample_s": "sample: out of the buffer",
    "time/reference_s": "reference: a second model's log-probabilities",
    "time/forward_backward_s": "forward, backward: layout, model, losses",
    "time/optimizer_s": "optimizer: norm of the gradient, AdamW",
    "time/sync_s": "sync: weights to the engines",
}


def read_rows(path: Path, *, skip: int) -> dict[int, dict[str, float]]:
    """Return the time metrics of each step, the roles' rows merged."""
    steps: dict[int, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "time/eval_s" in row:
            continue
        steps.setdefault(row["step"], {}).update(
            {name: value for name, value in row.items() if name.startswith("time/")}
        )
    return {step: row for step, row in steps.items() if step > skip and "time/step_s" in row}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("metrics", type=Path)
    parser.add_argument("--skip", type=int, default=3, help="first steps to leave out")
    options = parser.parse_args()
    rows = list(read_rows(options.metrics, skip=options.skip).values())
    whole = fmean(row["time/step_s"] for row in rows)
    print(f"{len(rows)} steps, {whole * 1000:.1f} ms each")
    known = 0.0
    for name, label in PARTS.items():
        seconds = fmean(row.get(name, 0.0) for row in rows)
        known += seconds
        print(f"{label:52} {seconds * 1000:8.1f} ms {seconds / whole:7.1%}")
    rest, label = whole - known, "rest: rollouts to disk, metrics, checkpoints"
    print(f"{label:52} {rest * 1000:8.1f} ms {rest / whole:7.1%}")


if __name__ == "__main__":
    main()
