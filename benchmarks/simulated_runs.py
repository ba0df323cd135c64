"""Simulated and measured step times of three runs over Ray: do they agree?

    python benchmarks/simulated_runs.py [--steps 24] [--runs turns,offset,async]

Rollouts and train steps sleep (``idle_parts.py``), so the two sides share no CPU cores.
The comparison is about when rollouts and train steps begin, wait and overlap. Each run is simulated
three times: with the times that it recorded itself, with those of the first run, in which the sides
take turns, and with the very times of its rollouts, one by one. The first two draw 500 steps from
what is known of the rollouts; the run itself had a few, and its luck with them: the last column is
without that. The measured time is the time between two train steps, by the trainer's clock.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GROUPS, ROWS, ENGINES, SLOTS = 8, 4, 2, 8
RUNS: dict[str, dict[str, Any]] = {
    "fixed, in turns": {"synchronizer": {"sync_style": "fixed", "sync_offset": 0}},
    "fixed, sync_offset 1": {"synchronizer": {"sync_style": "fixed", "sync_offset": 1}},
    "fully_async, 2 batches": {
        "synchronizer": {"sync_style": "fully_async"},
        "explorer": {"max_inflight_batches": 2},
    },
}
SHORT = dict(zip(("turns", "offset", "async"), RUNS, strict=True))
SKIPPED = 3  # first steps


def main() -> None:
    """Make the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--runs", default=",".join(SHORT), help="some of them")
    parser.add_argument("--record", type=Path, help="metrics.jsonl to simulate with")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(Path(options.one))
        return
    with tempfile.TemporaryDirectory(prefix="simulated-") as name:
        print(
            "| run | measured, s a step | with its own times | ratio | with the first's | ratio "
            "| with the same rollouts | ratio |"
        )
        print("|---" * 8 + "|", flush=True)
        record: Path | None = options.record
        for short in options.runs.split(","):
            run = SHORT[short]
            settings = RUNS[run]
            monitor = made(Path(name) / short, settings, steps=options.steps)
            record = record or monitor
            real = measured(monitor)
            found = [of_record(file, settings) for file in (monitor, record)]
            found.append(of_record(monitor, settings, same=options.steps))
            cells = " | ".join(f"{one:.2f} | {one / real:.2f}" for one in found)
            print(f"| {run} | {real:.2f} | {cells} |", flush=True)


def made(folder: Path, settings: dict[str, Any], *, steps: int) -> Path:
    """Start a run in a separate process; return its metrics file."""
    (folder / "plugins").mkdir(parents=True)
    shutil.copy(HERE / "idle_parts.py", folder / "plugins")
    (folder / "run.json").write_text(json.dumps(settings_of(folder, settings, steps=steps)))
    command = ["env", "OMP_NUM_THREADS=1", "RAY_USAGE_STATS_ENABLED=0"]
    command += [f"TRINITY_PLUGIN_DIRS={folder / 'plugins'}", sys.executable, __file__]
    log = folder / "log"
    with log.open("w") as out:
        command += ["--one", str(folder)]
        done = subprocess.run(command, cwd=folder, stdout=out, stderr=out, check=False)
    found = list(folder.glob("runs/**/metrics.jsonl"))
    if done.returncode or not found:
        raise SystemExit(f"the run failed:\n{log.read_text()[-3000:]}")
    return found[0]


def measured(monitor: Path) -> float:
    """Return the mean seconds between two train steps of a run."""
    rows = [json.loads(line) for line in monitor.read_text().splitlines()]
    ends = [row["clock_s"] for row in rows if "clock_s" in row][SKIPPED:]
    return float((ends[-1] - ends[0]) / (len(ends) - 1))


class SameRollouts:
    """The times of a run's rollouts, in the order in which they begin."""

    def __init__(self) -> None:
        from idle_parts import rollout_s

        steps, groups, rows = itertools.count(1), range(GROUPS), range(ROWS)
        self._left = (rollout_s(s, g, r) for s in steps for g in groups for r in rows)

    def draw(self, _dice: object) -> float:
        """Return the next one's seconds."""
        return next(self._left)


def of_record(record: Path, settings: dict[str, Any], *, same: int = 0) -> float:
    """Return the simulated seconds between two train steps.

    Args:
        record: ``metrics.jsonl`` of a run.
        settings: of the run that is simulated.
        same: so many steps, with the very times of a run's rollouts; 0: drawn by the record.
    """
    from trinity_debug.recorded_times import recorded_times
    from trinity_debug.simulated_run import Setup, simulated

    times = recorded_times(record, requests=GROUPS * ROWS, skip=SKIPPED)
    sync = settings["synchronizer"]
    setup = Setup(
        style=sync["sync_style"],
        offset=sync.get("sync_offset", 0),
        lead=settings.get("explorer", {}).get("max_inflight_batches", 2),
        groups=GROUPS,
        rows=ROWS,
        requests=ROWS,
        train_rows=GROUPS * ROWS,
        steps=500,  # so that chance is not what is compared
        engines=ENGINES,
        slots=SLOTS,
        rollout=times.rollout,
        train=times.train,
        sync=times.sync,
        around=times.around,
    )
    if not same:
        return simulated(setup).step_s
    first, whole = (
        simulated(dataclasses.replace(setup, steps=steps, rollout=SameRollouts()))
        for steps in (SKIPPED + 1, same)
    )
    return (whole.seconds - first.seconds) / (whole.train_steps - first.train_steps)


def settings_of(folder: Path, settings: dict[str, Any], *, steps: int) -> dict[str, Any]:
    """Return the configuration of a run."""
    from trinity_testing.tiny import make_tiny_model

    make_tiny_model(folder / "model")
    lines = [json.dumps({"question": f"{i} + 1 =", "answer": str(i + 1)}) for i in range(64)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    taskset = {
        "name": "rows",
        "path": str(folder / "rows.jsonl"),
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "sleeps",
        "default_reward_fn_type": "math_reward",
    }
    return {
        "project": "simulated",
        "name": "run",
        "checkpoint_root_dir": str(folder / "runs"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": ROWS, "kl_loss_fn": "none"},
        "model": {"model_path": str(folder / "model"), "max_model_len": 96},
        "buffer": {
            "batch_size": GROUPS,
            "total_steps": steps,
            "explorer_input": {"taskset": taskset},
        },
        "explorer": {
            "eval_on_startup": False,
            "eval_interval": 10**6,
            "runner_per_model": SLOTS,
            "rollout_model": {"engine_type": "answers_at_once", "engine_num": ENGINES},
            **settings.get("explorer", {}),
        },
        "synchronizer": {"sync_method": "memory", **settings["synchronizer"]},
        "trainer": {"trainer_type": "sleeps", "save_interval": 10**6},
    }


def run_one(folder: Path) -> None:
    """Make the run of a folder."""
    import trinity
    from trinity.common.config import Config

    trinity.run(Config.model_validate(json.loads((folder / "run.json").read_text())))


if __name__ == "__main__":
    main()
