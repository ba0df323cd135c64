"""Kill every process of a run in every phase, and count what is lost and what is trained twice.

``python benchmarks/kill_matrix.py --kills 30 --seed 0`` makes small runs with and without Ray, one
unbroken and the others killed about once a step at a random moment of a phase, and prints what the
person at the terminal saw. Each run is started again with the same command until it is finished.
The history of the weights must be that of the unbroken run; otherwise the exit code is 1.

``--agents`` gives the runs to commands that ask by HTTP, the second call streamed, and kills those
commands too, and the runner's process while it streams. ``--engine vllm`` answers with that engine.
``--style fully_async`` has groups in flight: which batch a group is in follows the clock, so that
only what is lost and what is trained twice is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import kill_matrix_agents as agents

NUM_STEPS = 8  # of each run, unless --steps says otherwise
PHASES = ("explore", "train", "sync", "save", "evaluation")
ROOMS = ("trainer", "engine-0", "runner-0")
MAX_STARTS = 16
SEEN = re.compile(r"lost|taken over|going on after|Error")
REWARD = """
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("letters")
class Letters(RewardFn):
    def __call__(self, response=None, **kwargs):
        return {"letters": sum(map(str.isalpha, response or "")) / 16}
"""
DRIVER = Path(__file__).with_name("kill_matrix_driver.py")


@dataclass(kw_only=True)
class Kill:
    """One kill: planned, then what came of it."""

    process: str
    phase: str
    step: int  # the first explore step at which it may come
    share: float  # of the phase's usual duration that passes before
    is_over_ray: bool


def main() -> int:
    """Print the table; return 1 if a run lost or repeated something."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=30)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--steps", type=int, default=NUM_STEPS, help="of a run: its kills + 1")
    options.add_argument("--only", choices=("local", "ray"), help="one kind of run")
    options.add_argument("--unbroken", choices=("local", "ray"), help="the kind compared with")
    options.add_argument("--interval", type=int, default=1, help="synchronizer.sync_interval")
    options.add_argument("--offset", type=int, default=0, help="above 0 the sides overlap over Ray")
    options.add_argument("--style", default="fixed", help="synchronizer.sync_style")
    options.add_argument("--method", default="memory", help="synchronizer.sync_method")
    options.add_argument("--inflight", type=int, default=2, help="explorer.max_inflight_batches")
    options.add_argument("--storage", default="queue", help="the storage_type between both sides")
    options.add_argument("--agents", action="store_true", help="commands that ask by HTTP")
    options.add_argument("--engine", help="the engine_type; none: the embedded one")
    options.add_argument("--engines", type=int, default=1, help="engine_num")
    options.add_argument("--cells", nargs="+", metavar="PROCESS:PHASE", help="only these")
    options.add_argument("--folder", type=Path, help="is kept; a matrix that broke off goes on")
    chosen = options.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
        return _matrix(chosen.folder, chosen)
    with tempfile.TemporaryDirectory(prefix="kill-matrix-") as folder:
        return _matrix(Path(folder), chosen)


def _matrix(folder: Path, chosen: argparse.Namespace) -> int:
    if not (folder / "run.yaml").exists():
        _write_inputs(folder, chosen)
    rows: list[dict[str, Any]] = []
    bad = 0
    unbroken: dict[str, dict[str, Any]] = {}
    for number, kills in enumerate(_plans(chosen)):
        kind = "ray" if kills[0].is_over_ray else "local"
        other = chosen.unbroken or kind
        if other not in unbroken:
            unbroken[other] = _run(folder, f"{other}-unbroken", [], kind=other)
        whole = unbroken[other]
        ended = _run(
            folder, f"{kind}-{number}", kills, kind=kind, seconds=_usual_seconds(whole["events"])
        )
        bad += _compared(ended, whole, rows, has_order=chosen.style == "fixed")
    left = agents.left_behind(folder)
    _print_table(rows)
    print(f"{len(rows)} kills in {number + 1} runs; {bad} experiences lost, repeated or misplaced")
    print(f"{len(left)} processes and ports left: {', '.join(left) or 'none'}")
    return 1 if bad or left or len(rows) < chosen.kills else 0


def _plans(chosen: argparse.Namespace) -> list[list[Kill]]:
    """Return the kills of each run: every process and phase in turn, each at a step of its own."""
    dice = random.Random(chosen.seed)
    cells = [("driver", phase, False) for phase in PHASES] if chosen.only != "ray" else []
    if chosen.agents and chosen.only != "ray":
        cells.append(("agent", "explore", False))
    if chosen.agents and chosen.only != "local":
        cells.append(("agent", "explore", True))
    if chosen.only != "local":
        cells += [(process, phase, True) for process in ("driver", *ROOMS) for phase in PHASES]
    if chosen.cells:
        cells = [cell for cell in cells if f"{cell[0]}:{cell[1]}" in chosen.cells]
    dice.shuffle(cells)
    picked = [cells[n % len(cells)] for n in range(chosen.kills)]
    plans = []
    for is_over_ray in (False, True):
        own = [cell for cell in picked if cell[2] is is_over_ray]
        for first in range(0, len(own), chosen.steps - 1):
            part = own[first : first + chosen.steps - 1]
            plans.append(
                [
                    Kill(process=p, phase=f, step=n + 1, share=dice.random(), is_over_ray=r)
                    for n, (p, f, r) in enumerate(part)
                ]
            )
    return plans


def _run(
    folder: Path,
    name: str,
    kills: list[Kill],
    *,
    kind: str,
    seconds: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Start a run until it is finished; return its history, its events and what was said."""
    place, directory = folder / name, folder / "runs" / "kills" / name
    place.mkdir(exist_ok=True)
    plan = {"kills": [asdict(kill) for kill in kills], "seconds": seconds or {}}
    (place / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, str(DRIVER), str(place), "run", "--config", str(folder / "run.yaml")]
    command += ["--set", f"name={name}", "--set", f"checkpoint_root_dir={folder / 'runs'}"]
    command += ["--plugin-dir", str(folder / "plugins")]
    command += ["--local"] if kind == "local" else []
    num_starts, code = 0, 0 if _is_finished(directory) else -9
    while code < 0 and num_starts < MAX_STARTS:
        num_starts += 1
        with (place / "said.txt").open("a") as said:
            said.write(f"{time.time():.3f} $ trinity run\n")
            code = _followed(command, said)
    print(f"{name}: exit code {code} after {num_starts} starts", file=sys.stderr)
    if code and not (kills and (directory / "history.jsonl").exists()):
        sys.exit((place / "said.txt").read_text())
    history = [json.loads(line) for line in (directory / "history.jsonl").open()]
    return {
        "history": history,
        "num_differing": _ledger_differs(directory, history, is_kept=_keeps_a_ledger(folder)),
        "losses": _losses(directory),
        "events": [json.loads(line) for line in (place / "events.jsonl").open()],
        "said": (place / "said.txt").read_text().splitlines(),
        "code": code,
    }


def _is_finished(directory: Path) -> bool:
    path = directory / "run.json"
    return path.exists() and json.loads(path.read_text())["status"] == "finished"


def _usual_seconds(events: list[dict[str, Any]]) -> dict[str, float]:
    return {
        phase: median(event["seconds"] for event in events if event.get("done") == phase)
        for phase in PHASES
    }


def _followed(command: list[str], said: Any) -> int:
    """Run a command, writing down when each line was said; return its exit code."""
    with subprocess.Popen(
        command,
        env={"RAY_ADDRESS": "local"} | os.environ,  # noqa: TID251 -- not a Ray that stands already
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.write(f"{time.time():.3f} {line}")
            said.flush()
    return process.returncode


def _losses(directory: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (directory / "monitor" / "metrics.jsonl").open()]
    return {row["step"]: row["actor/loss"] for row in rows if row["role"] == "trainer"}


def _keeps_a_ledger(folder: Path) -> bool:
    return "storage_type: sql" in (folder / "run.yaml").read_text()


def _ledger_differs(directory: Path, history: list[dict[str, Any]], *, is_kept: bool) -> int:
    """Return in how many steps the ledger and the history of the weights differ.

    One that is to be kept and is not there differs in all of them.
    """
    path = directory / "buffer" / "ledger.db"
    if not path.exists():
        return is_kept * max(1, len(history))
    query = "SELECT train_step, uid FROM experience WHERE train_place IS NOT NULL ORDER BY 1, 2"
    with closing(sqlite3.connect(path)) as ledger:
        own: dict[int, list[str]] = {}
        for step, uid in ledger.execute(query):
            own.setdefault(step, []).append(uid)
    whole = {line["step"]: sorted(line["eids"]) for line in history}
    return sum(own.get(step) != whole.get(step) for step in own.keys() | whole.keys())


def _compared(
    ended: dict[str, Any],
    unbroken: dict[str, Any],
    rows: list[dict[str, Any]],
    *,
    has_order: bool,
) -> int:
    """Add a row for each kill; return how many experiences are not where they must be."""
    own, whole = (
        [eid for line in run["history"] for eid in line["eids"]] for run in (ended, unbroken)
    )
    lost = len(set(whole) - set(own))
    twice = sum(count - 1 for count in Counter(own).values())
    misplaced = has_order * sum(a != b for a, b in zip(own, whole, strict=False))
    strange = len(set(own) - set(whole))
    drift = max(
        (abs(loss - ended["losses"].get(step, 1e9)) for step, loss in unbroken["losses"].items()),
        default=0.0,
    )
    for number, event in enumerate(ended["events"]):
        if "killed" in event:
            rows.append(
                event
                | {"lost": lost, "twice": twice, "drift": drift}
                | dict(zip(("said_s", "saw"), _saw(ended, event["t"]), strict=True))
                | {"seconds": _seconds_until_whole(ended["events"][number:])}
            )
    return lost + twice + misplaced + strange + ended["num_differing"] + (ended["code"] != 0)


def _seconds_until_whole(events: list[dict[str, Any]]) -> float:
    """Return how long after the first event both an explore and an optimizer step were done."""
    done = [[e["t"] for e in events if e.get("done") == phase] for phase in ("explore", "train")]
    if not all(done):
        return float("nan")
    return max(times[0] for times in done) - float(events[0]["t"])


def _saw(ended: dict[str, Any], killed_at: float) -> tuple[float, str]:
    """Return the first line that told the person at the terminal, and after how many seconds."""
    for line in ended["said"]:
        at, _, text = line.partition(" ")
        if float(at) >= killed_at and SEEN.search(text):
            return float(at) - killed_at, text.removeprefix("warning: ")
    return float("nan"), "nothing"


def _print_table(rows: list[dict[str, Any]]) -> None:
    print("seconds: until an explore step and an optimizer step were done")
    print("said: seconds until it was")
    print("| run | process | phase | lost | twice | loss difference | seconds | said | seen |")
    print("|---|---|---|---|---|---|---|---|---|")
    order = {name: number for number, name in enumerate(("driver", "agent", *ROOMS))}
    for row in sorted(rows, key=lambda r: (r["is_over_ray"], order[r["killed"]], r["phase"])):
        kind = "Ray" if row["is_over_ray"] else "--local"
        saw = re.sub(r"/\S*/", ".../", row["saw"])[:110]
        phase = f"{row['phase']}, streaming" if row.get("is_streaming") else row["phase"]
        print(
            f"| {kind} | {row['killed']} | {phase} | {row['lost']} | {row['twice']} "
            f"| {row['drift']:.1e} | {row['seconds']:.1f} | {row['said_s']:.1f} | {saw} |"
        )


def _write_inputs(folder: Path, chosen: argparse.Namespace) -> None:
    import yaml
    from trinity_testing.tiny import make_tiny_model

    make_tiny_model(folder / "model", hidden=128 if chosen.engine else 64)
    (folder / "plugins").mkdir()
    (folder / "plugins" / "letters.py").write_text(REWARD)
    for name, count in (("rows", 2 * chosen.steps), ("held_out", 4)):
        rows = [{"question": f"{n} + 1 =", "answer": str(n + 1)} for n in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def taskset(name: str) -> dict[str, Any]:
        return {
            "name": name,
            "path": str(folder / f"{name}.jsonl"),
            "format": {"prompt_key": "question", "response_key": "answer"},
            "default_workflow_type": "simple_workflow",
            "default_reward_fn_type": "letters",
        }

    inputs = {"taskset": taskset("rows"), "eval_tasksets": [taskset("held_out")]}
    if chosen.agents:
        inputs["taskset"] |= agents.written(folder)
    config = {
        "project": "kills",
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4, "optimizer": {"lr": 1e-3}},
        "model": {
            "model_path": str(folder / "model"), "max_model_len": 96, "max_response_tokens": 16,
        },
        "buffer": {"batch_size": 2, "total_epochs": 1, "explorer_input": inputs},
        "explorer": {
            "eval_on_startup": False,
            "eval_interval": 1,
            "max_inflight_batches": chosen.inflight,
        },
        "synchronizer": {
            "sync_method": chosen.method,
            "sync_style": chosen.style,
            "sync_interval": chosen.interval,
            "sync_offset": chosen.offset,
        },
        "trainer": {"save_interval": 1, "max_checkpoints_to_keep": 2},
        "monitor": {"monitor_type": "jsonl"},
    }  # fmt: skip
    if chosen.storage != "queue":
        experiences = {"storage_type": chosen.storage}
        config["buffer"]["trainer_input"] = {"experience_buffer": experiences}
    if chosen.engine:
        config["explorer"]["rollout_model"] = {"engine_type": chosen.engine}
    if chosen.engines > 1:
        config["explorer"].setdefault("rollout_model", {})["engine_num"] = chosen.engines
    (folder / "run.yaml").write_text(yaml.safe_dump(config))


if __name__ == "__main__":
    sys.exit(main())
