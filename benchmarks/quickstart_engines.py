"""The quickstart with the embedded engine and with vLLM: reward, CPU, log-probabilities.

    python benchmarks/quickstart_engines.py [--seeds 0 1 2] [--steps 100] [--engines ...]

Run it in an environment with vLLM (docs/how-to/use-vllm.md), or name one engine. Each run is the
quickstart's with a model 128 wide, for so many steps of its second stage. The last column is how
far the log-probabilities that the engine told are from those that the trainer computes of the
same tokens in one forward: the mean over a step's tokens, of the step where it is largest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart"
REWARD = "eval/held_out/reward/mean@4"
DIFFERENCE = "actor/rollout_logprob_diff"
EVALUATIONS = 4


def main() -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--engines", nargs="+", default=["transformers", "vllm"])
    options = parser.parse_args()
    steps = [options.steps * part // EVALUATIONS for part in range(EVALUATIONS + 1)]
    print(f"| engine | seed | held-out reward at {', '.join(map(str, steps))} | CPU s | logprobs |")
    print("|---|---|---|---|---|")
    for seed in options.seeds:
        for engine in options.engines:
            print(row(engine, seed, steps=options.steps), flush=True)


def row(engine: str, seed: int, *, steps: int) -> str:
    """Return the row of one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = [str(QUICKSTART / "prepare.py"), "--hidden", "128", "--seed", str(seed)]
        call([sys.executable, *prepare], folder=folder)
        changes = {
            "seed": seed,
            "buffer.total_steps": steps,
            "explorer.eval_interval": steps // EVALUATIONS,
            "explorer.rollout_model.engine_type": engine,
            "monitor.monitor_type": "jsonl",
        }
        words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        config = ["--config", str(QUICKSTART / "quickstart.yaml"), *words]
        spent = call([sys.executable, "-m", "trinity", "run", "--local", *config], folder=folder)
        lines = next(folder.glob("checkpoints/*/*/grpo/monitor/metrics.jsonl")).open()
        rows = [json.loads(line) for line in lines]
    rewards = " ".join(f"{one[REWARD]:.3f}" for one in rows if REWARD in one)
    largest = max(one[DIFFERENCE] for one in rows if DIFFERENCE in one)
    return f"| {engine} | {seed} | {rewards} | {spent:.0f} | {largest:.1e} |"


def call(command: list[str], *, folder: Path) -> float:
    """Run a command, and return the CPU seconds that it and its children took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # noqa: TID251 -- handed to another process
    subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
