"""Learn a small task with TRL's GRPOTrainer and with ``trinity run``: the CPU seconds it takes.

    python benchmarks/against_trl.py [--trl-python PATH] [--task sums] [--sides trl,local,ray]

    digits   told "say 3", say 3, for ten digits; the reward is the share of an answer's first 8
             characters that are the digit; 64 samples a step, at most 8 new tokens, learning rate
             3e-4, from random weights
    sums     told "34+58", write the sum backwards, "29"; the reward is 1 or 0; 128 samples a step,
             at most 4 new tokens, learning rate 1e-4, from weights that were shown sums before
    sorting  told "30717", write its digits in order, "01377" (4 to 8 digits); as sums, but at most
             10 new tokens

All sides start from one model folder (a Qwen3 of a million weights, whose tokens are characters)
and read the same rows, drawn by the seed, in groups of 8, without a schedule, at temperature 1,
with AdamW without weight decay, gradients clipped at 1, no KL term, one thread; all else as each
comes. They take turns, seed by seed. Counted are the CPU seconds of all processes of a side, from
its first rewards until the mean reward of ten steps is 0.8. Parts are of TRL's better way, with or
without recomputing activations.

    trl         GRPOTrainer's defaults, but in float32 as the others
    trl-plain   the same without gradient checkpointing, which is its default
    hand        a plain torch loop (grpo_tasks/by_hand.py)
    local, ray  trinity run with and without --local
    *-bf16      computing in bfloat16 (for TRL the default)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from statistics import median

from grpo_tasks.cpu_clock import Curve, watch
from grpo_tasks.models import make_model
from grpo_tasks.task import TASKS, make_rows

HERE = Path(__file__).resolve().parent / "grpo_tasks"
SIDES = ("trl", "trl-plain", "hand", "local", "ray", "trl-bf16", "hand-bf16", "local-bf16")
GOAL, WINDOW = 0.8, 10


def main() -> None:
    """Run the sides and print the table; curves.json and curves.png lie in the output folder."""
    options = parse()
    folder: Path = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sides = options.sides.split(",")
    python = sys.executable
    if any(side.startswith("trl") for side in sides):
        python = str(options.trl_python or make_trl_python(folder.parent / "trl-venv"))
    curves: dict[str, list[Curve]] = {side: [] for side in sides}
    for seed in range(options.seeds):
        model = make_model(folder, task=options.task, seed=seed)
        rows = make_rows(folder / f"rows-{seed}.jsonl", task=TASKS[options.task], seed=seed)
        for side in sides:
            place = folder / f"{side}-{seed}"
            curve = run_side(side, model, rows, place=place, seed=seed, options=options, trl=python)
            curves[side].append(curve)
            print(f"seed {seed}  {side:11} {described(curve)}", flush=True)
    print(table(curves))
    write_curves(folder, curves)


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trl-python", type=Path, help="an interpreter that has TRL")
    parser.add_argument("--sides", default="trl,trl-plain,hand,local,ray")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="the most that a side may take")
    parser.add_argument("--task", choices=TASKS, default="digits")
    parser.add_argument("--out", type=Path, default=Path("against_trl"))
    options = parser.parse_args()
    if unknown := set(options.sides.split(",")) - set(SIDES):
        parser.error(f"no such side: {', '.join(sorted(unknown))}; there are {', '.join(SIDES)}")
    return options


def make_trl_python(folder: Path) -> Path:
    """Return the interpreter of a new environment with the newest TRL."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "trl"], check=True)
    return python


def run_side(  # noqa: PLR0913 -- what a run consists of
    side: str,
    model: Path,
    rows: Path,
    *,
    place: Path,
    seed: int,
    options: argparse.Namespace,
    trl: str,
) -> Curve:
    """Return the curve of one side and seed."""
    place.mkdir(parents=True)
    name, is_half = side.removesuffix("-bf16"), side.endswith("-bf16")
    progress = place / "progress.jsonl"
    common = [f"--model={model}", f"--rows={rows}", f"--progress={progress}"]
    common += [f"--task={options.task}"]
    common += [f"--seed={seed}", f"--steps={options.steps}", *(["--bf16"] if is_half else [])]
    inherited = dict(os.environ)  # noqa: TID251 -- what the sides inherit
    environment = inherited | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    if name in {"trl", "trl-plain"}:
        command = [trl, str(HERE / "trl_side.py"), *common]
        command += ["--keep-activations"] if name == "trl-plain" else []
    elif name == "hand":
        command = [sys.executable, str(HERE / "by_hand.py"), *common]
    else:
        config = place / "run.json"
        dtype = "bfloat16" if is_half else "float32"
        settings = trinity_config(model, rows, place=place, seed=seed, options=options, dtype=dtype)
        config.write_text(json.dumps(settings))
        program = "from trinity.cli.main import main; main()"
        command = [sys.executable, "-c", program, "run", f"--config={config}"]
        command += [f"--plugin-dir={HERE / 'parts'}", *(["--local"] if name == "local" else [])]
        progress = place / "grpo_tasks/run/monitor/metrics.jsonl"
    return watch(
        command,
        rewards_of=lambda: read_rewards(progress),
        goal=GOAL,
        window=WINDOW,
        log=place / "log.txt",
        environment=environment,
    )


def trinity_config(
    model: Path, rows: Path, *, place: Path, seed: int, options: argparse.Namespace, dtype: str
) -> dict:
    """Return the configuration of ``trinity run``."""
    task = TASKS[options.task]
    return {
        "project": "grpo_tasks",
        "name": "run",
        "checkpoint_root_dir": str(place),
        "seed": seed,
        "algorithm": {
            "algorithm_type": "grpo",
            "repeat_times": task.group,
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
            "optimizer": {"lr": task.lr, "weight_decay": 0.0},
        },
        "model": {
            "model_path": str(model),
            "max_model_len": 64,
            "max_response_tokens": task.answer_tokens,
        },
        "buffer": {
            "batch_size": task.prompts,
            "total_steps": options.steps,
            "explorer_input": {
                "taskset": {
                    "name": "rows",
                    "path": str(rows),
                    "format": {"prompt_key": "question", "response_key": "answer"},
                    "default_workflow_type": "simple_workflow",
                    "default_reward_fn_type": f"reward_of_{options.task}",
                },
            },
        },
        "explorer": {"rollout_model": {"dtype": dtype}},
        "trainer": {"precision": dtype},
        "synchronizer": {"sync_method": "memory"},
        "monitor": {"monitor_type": "jsonl"},
    }


def read_rewards(progress: Path) -> list[float]:
    """Return the reward of each step so far."""
    if not progress.exists():
        return []
    lines = progress.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    rewards = [row.get("reward", row.get("rollout/reward/mean")) for row in rows]
    return [reward for reward in rewards if reward is not None]


def described(curve: Curve) -> str:
    """Return a line about one run."""
    seconds = curve.seconds_until(GOAL, window=WINDOW)
    if seconds is None:
        last = curve.means(WINDOW)[-1:] or [0.0]
        seconds = (curve.cpu_s or [0.0])[-1] - curve.startup_s
        return (
            f"not learned in {len(curve.rewards)} steps; reward {last[0]:.2f}; "
            f"{seconds / max(1, len(curve.rewards) - 1) * 1000:.1f} ms a step"
        )
    steps = curve.steps_until(GOAL, window=WINDOW) or 1
    return (
        f"{seconds:6.1f} CPU s  {steps:4d} steps  {seconds / (steps - 1) * 1000:6.1f} ms a step  "
        f"start-up {curve.startup_s:.1f} s"
    )


def table(curves: dict[str, list[Curve]]) -> str:
    """Return the medians over the seeds, and each side's part of the better of TRL's ways."""
    medians = {side: _medians(runs) for side, runs in curves.items()}
    learned = {side: one for side, one in medians.items() if one is not None}
    peers = [one for side, one in learned.items() if side in {"trl", "trl-plain"}]
    base = min(peers or learned.values(), default=None)
    lines = [
        "",
        f"{'side':11} {'CPU s':>7} {'of peer':>7} {'steps':>6} {'ms/step':>8} {'of peer':>7}",
    ]
    for side, one in medians.items():
        if one is None or base is None:
            lines.append(f"{side:11} not learned by every seed")
            continue
        seconds, steps, each = one
        lines.append(
            f"{side:11} {seconds:7.1f} {seconds / base[0]:7.2f} {steps:6.0f} "
            f"{each:8.1f} {each / base[2]:7.2f}"
        )
    return "\n".join(lines)


def _medians(runs: list[Curve]) -> tuple[float, float, float] | None:
    """Return CPU seconds, steps, and ms a step, in the middle; None: a seed did not learn it."""
    seconds = [run.seconds_until(GOAL, window=WINDOW) for run in runs]
    steps = [run.steps_until(GOAL, window=WINDOW) for run in runs]
    if None in seconds:
        return None
    each = [a / (b - 1) * 1000 for a, b in zip(seconds, steps, strict=True)]
    return median(seconds), median(steps), median(each)


def write_curves(folder: Path, curves: dict[str, list[Curve]]) -> None:
    """Write the numbers, and where matplotlib is there the plot: reward over CPU seconds."""
    numbers = {side: [vars(run) for run in runs] for side, runs in curves.items()}
    (folder / "curves.json").write_text(json.dumps(numbers))
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, (side, runs) in enumerate(curves.items()):
        for place, run in enumerate(runs):
            seconds = [second - run.startup_s for second in run.cpu_s[WINDOW - 1 :]]
            label = side if place == 0 else None
            axes.plot(seconds, run.means(WINDOW), color=f"C{number}", label=label, linewidth=1)
    axes.axhline(GOAL, color="grey", linestyle=":")
    axes.set_xlabel("CPU seconds of all processes, start-up apart")
    axes.set_ylabel(f"mean reward of {WINDOW} steps")
    axes.legend()
    figure.savefig(folder / "curves.png", dpi=120)


if __name__ == "__main__":
    main()
