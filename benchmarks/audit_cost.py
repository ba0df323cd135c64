"""Measure what the audit of a run takes of its steps: runs with ``warn`` and ``off``, in turns.

    python benchmarks/audit_cost.py --pairs 4

A pair of runs trains the same rows on the same model with the same seed; their step times are
compared step by step, the first step of each left out. What the audit takes is measured twice: the
CPU time inside of its functions, and the difference of the runs' CPU time, which is noisier.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity_testing.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = {
    "RowAudit": ("processed", "begin_write", "end_write", "read", "sampled", "trained"),
    "Audit": ("stepped", "recorded", "logged", "compare_weights"),
    "StepAudit": ("compare", "take"),
}


def main() -> None:
    """Print a line for each pair, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64, help="of each response")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="audit-cost-") as name:
        folder = Path(name)
        make_tiny_model(folder / "model", hidden=options.hidden, layers=4)
        lines = [json.dumps({"question": f"{i} + 1 =", "answer": str(i + 1)}) for i in range(64)]
        (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
        spent: list[float] = []
        watch(spent)
        inside, differences = [], []
        for pair in range(options.pairs):
            took = {}
            for audit in ("off", "warn") if pair % 2 else ("warn", "off"):
                spent.clear()
                took[audit] = cpu_s(audit, folder=folder, pair=pair, options=options)
                if audit == "warn":
                    inside.append(sum(spent) / took[audit])
            differences.append(took["warn"] / took["off"] - 1)
            print(
                f"pair {pair}: off {took['off']:.2f} s, warn {took['warn']:.2f} s of CPU "
                f"({differences[-1]:+.2%}); inside of the audit {inside[-1]:.2%}",
                flush=True,
            )
    print(
        f"median of {options.pairs} pairs: inside of the audit {statistics.median(inside):.2%} of "
        f"a run's steps, runs differ by {statistics.median(differences):+.2%}"
    )


def watch(spent: list[float]) -> None:
    """Count the CPU time of the thread inside of the audit's functions."""
    from trinity.common.ports import trainer
    from trinity.runtime import audit, audited_rows
    from trinity.trainer.algorithm_parts import StepAudit

    owners = [audited_rows.RowAudit, audit.Audit, StepAudit]
    for owner in owners:
        for name in NAMES[owner.__name__]:
            setattr(owner, name, timed(getattr(owner, name), spent))
    audit.digest_of = timed(trainer.digest_of, spent)  # type: ignore[attr-defined]


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Return the function, which adds the seconds of each call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            spent.append(time.thread_time() - began)

    return call


def cpu_s(audit: str, *, folder: Path, pair: int, options: argparse.Namespace) -> float:
    """Return the CPU seconds of a run's steps."""
    import trinity
    from trinity.common.config import Config
    from trinity.runtime.loop import Loop

    taken: list[float] = []
    run = Loop.run

    def counted(self: Loop) -> None:
        began = time.process_time()
        run(self)
        taken.append(time.process_time() - began)

    taskset = {
        "name": "rows",
        "path": str(folder / "rows.jsonl"),
        "format": {"prompt_key": "question", "response_key": "answer"},
        "default_workflow_type": "simple_workflow",
        "default_reward_fn_type": "format_reward",
    }
    settings = {
        "project": "cost",
        "name": f"{audit}-{pair}",
        "audit": audit,
        "checkpoint_root_dir": str(folder),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 8, "optimizer": {"lr": 1e-5}},
        "model": {
            "model_path": str(folder / "model"),
            "max_model_len": 64 + options.tokens,
            "max_response_tokens": options.tokens,
        },
        "buffer": {
            "batch_size": 4,
            "total_steps": options.steps,
            "explorer_input": {"taskset": taskset},
        },
        "explorer": {"eval_on_startup": False, "rollout_model": {"engine_num": 2}},
        "monitor": {"monitor_type": "jsonl"},
    }
    Loop.run = counted  # type: ignore[method-assign]
    try:
        trinity.run(Config.model_validate(settings), local=True)
    finally:
        Loop.run = run  # type: ignore[method-assign]
    return taken[-1]


if __name__ == "__main__":
    main()
