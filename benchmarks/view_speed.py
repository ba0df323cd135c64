"""How long the pages of ``trinity view`` take on a run of many experiences.

    python benchmarks/view_speed.py --experiences 100000 --tokens 256

Makes a run directory as a run leaves it (metrics, samples, rollouts), opens it in the viewer and
asks for each page six times: the first answer may have to find out what the others know, of which
the fastest counts. Beside it stand small runs of several settings and seeds, which are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient
from tokenizers import Tokenizer, models
from trinity.common.columns import Column
from trinity.common.config import Config
from trinity.common.experience import EID, Experience
from trinity.runtime.record.evaluation_samples import EvaluationLog
from trinity.runtime.record.records import write_record
from trinity.runtime.record.rundir import write_manifests
from trinity.runtime.record.samples import FOLDER, encode
from trinity_studio.view.run import find_runs
from trinity_studio.view.server import app_of

PER_STEP, TRIES = 256, 8
WORDS = 1000


def main() -> int:
    """Print the table; return 1 if a page took longer than it may."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--experiences", type=int, default=100_000)
    options.add_argument("--tokens", type=int, default=256, help="of an experience, half a prompt")
    options.add_argument("--runs", type=int, default=200, help="the large one and small ones")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "a-run"
        num_steps = -(-chosen.experiences // PER_STEP)
        write_run(directory, num_steps=num_steps, num_tokens=chosen.tokens)
        for number in range(1, chosen.runs):
            write_small_run(Path(folder) / f"run-{number:03}", number=number)
        size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        print(f"{num_steps * PER_STEP:,} experiences, {num_steps} steps, {size / 1e6:,.0f} MB")
        return 1 if _is_slow(directory, num_steps) else 0


def write_run(directory: Path, *, num_steps: int, num_tokens: int) -> None:
    """Write a run directory of so many steps."""
    config = Config()
    _evaluation(directory, num_tokens)
    for name in (FOLDER, "monitor", "buffer", "global_step_1/actor/huggingface"):
        (directory / name).mkdir(parents=True)
    write_manifests(config, plugins=[], directory=directory)
    dice = np.random.default_rng(0)
    vocabulary = {f"word{number}": number for number in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="word0"))
    tokenizer.save(str(directory / "global_step_1/actor/huggingface/tokenizer.json"))
    with (
        (directory / FOLDER / "from-00000001.bin").open("wb") as samples,
        (directory / "monitor" / "metrics.jsonl").open("w") as metrics,
        (directory / "buffer" / "explorer_output.jsonl").open("w") as rollouts,
    ):
        for step in range(1, num_steps + 1):
            samples.write(_block(step, num_tokens, dice))
            metrics.writelines(json.dumps(row) + "\n" for row in _metrics(step))
            rows = [_rollout(step, number, num_tokens) for number in range(PER_STEP)]
            rollouts.writelines(json.dumps(row) + "\n" for row in rows)


def write_small_run(directory: Path, *, number: int) -> None:
    """Write one of many runs: fifty steps with metrics, and its own setting and seed."""
    (directory / "monitor").mkdir(parents=True)
    config = Config(seed=number % 5, name=directory.name)
    config.algorithm.optimizer.lr = 1e-4 * (1 + number // 5)
    write_manifests(config, plugins=[], directory=directory)
    rows = [row for step in range(1, 51) for row in _metrics(step)]
    rows += [{"step": step, "role": "explorer", "eval/held_out/reward/mean@4": step / 50 + number}
             for step in range(0, 51, 10)]  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "monitor" / "metrics.jsonl").write_text(lines)
    write_record(directory / "run.json", {"status": "finished", "train_steps": 50})


def _evaluation(directory: Path, num_tokens: int) -> None:
    """Keep the samples of an evaluation of 250 tasks, four tries each."""
    rows = [
        Experience(
            tokens=[(task + place) % WORDS for place in range(num_tokens)],
            prompt_length=num_tokens // 2,
            logprobs=[-0.5] * (num_tokens - num_tokens // 2),
            reward=float((task + run) % 2),
            eid=EID(batch="eval", task=task, run=run),
        )
        for task in range(250)
        for run in range(4)
    ]
    EvaluationLog(directory, limit=10**9, is_bench=False).evaluated(10, "held_out", rows)


def _block(step: int, num_tokens: int, dice: np.random.Generator) -> bytes:
    start = num_tokens // 2
    rows = [
        {"eid": f"{step}/{n // TRIES}/{n % TRIES}/0", "length": num_tokens, "prompt_length": start,
         "reward": float(n % 2), "temperature": 1.0, "truncate_status": None,
         "metrics": {"accuracy": float(n % 2)}, "info": {"model_version": step - 1}}
        for n in range(PER_STEP)
    ]  # fmt: skip
    count = (num_tokens - start) * PER_STEP
    lengths = np.full(PER_STEP, num_tokens, dtype=np.int32)
    sizes = lengths - start
    tokens = dice.integers(0, WORDS, num_tokens * PER_STEP, dtype=np.int32)
    advantages = dice.normal(size=PER_STEP).astype(np.float32)
    columns = {
        "tokens": Column(tokens, lengths),
        "logprobs": Column(-dice.exponential(1.0, count).astype(np.float32), sizes),
        "advantages": Column(np.repeat(advantages, sizes), sizes),
        "mask": Column(np.ones(count, dtype=bool), sizes),
    }
    return encode(step, rows, columns)


def _metrics(step: int) -> list[dict[str, Any]]:
    many = {f"actor/metric_{number}": random.random() for number in range(40)}
    return [
        {"step": step, "role": "explorer", "rollout/reward/mean": step / 1000, **many},
        {"step": step, "role": "trainer", "actor/loss": 1 / step, "time/train_s": 1.0, **many},
        {"step": step, "role": "synchronizer", "time/step_s": 2.0, "time/sync_s": 0.1},
    ]


def _rollout(step: int, number: int, num_tokens: int) -> dict[str, Any]:
    eid = {"batch": step, "task": number // TRIES, "run": number % TRIES, "step": 0, "suffix": ""}
    return {
        "tokens": [number % WORDS] * num_tokens,
        "prompt_length": num_tokens // 2,
        "eid": eid,
        "logprobs": [-0.5] * (num_tokens // 2),
        "reward": float(number % 2),
        "prompt_text": "word " * (num_tokens // 2),
        "response_text": "word " * (num_tokens // 2),
    }


def _is_slow(directory: Path, num_steps: int) -> bool:
    began = time.perf_counter()
    client = TestClient(
        app_of(lambda: find_runs([directory.parent]), token="t"), base_url="http://127.0.0.1"
    )
    client.get("/t/run/0")
    opened = time.perf_counter() - began
    print(f"{'opened':44} {opened * 1000:8.0f} ms")
    middle = num_steps // 2
    pages = ("", "/live", f"/step/{middle}", f"/step/{middle + 1}?order=reward", "/step/1?page=3",
             f"/task/{middle}/3", f"/task/{num_steps}/31", "/rollouts", "/rollouts?page=500",
             f"/task/{middle}/4", "/failures", "/provenance", "/metrics", "/evaluations/0",
             "/evaluations/0?q=word999&only=mixed", "/search?q=word", "/search?q=nobody+says+this",
             )  # fmt: skip
    slowest = _until_all_are_read(client)
    several = "&".join(f"run={number}" for number in range(1, 51))
    whole = ("/", "/?sort=best&down=1&q=run-1", "/runs.csv", f"/compare?{several}",
             f"/compare/metrics?{several}", f"/compare/samples?{several}",
             f"/series.json?name=actor/loss&by_seed=1&{several}")  # fmt: skip
    for page in [*(f"/run/0{page}" for page in pages), *whole]:
        times = [_seconds(client, f"/t{page}") for _ in range(6)]
        best = min(times[1:])
        slowest = max(slowest, best)
        print(f"{page[:44]:44} {times[0] * 1000:8.0f} ms first {best * 1000:6.0f} ms then")
    return opened > 1.0 or slowest > 0.1


def _until_all_are_read(client: TestClient) -> float:
    """Ask for the table of runs as a browser does, until it has all; return the longest wait."""
    began, waits, text = time.perf_counter(), [], ""
    while not waits or "are still being read" in text:
        if waits:
            time.sleep(1.0)
        asked = time.perf_counter()
        text = client.get("/t/").text
        waits.append(time.perf_counter() - asked)
    print(
        f"{'table of runs, until all are read':44} {waits[0] * 1000:8.0f} ms first "
        f"{max(waits) * 1000:6.0f} ms at most, {time.perf_counter() - began:.1f} s for all"
    )
    return max(waits)


def _seconds(client: TestClient, path: str) -> float:
    began = time.perf_counter()
    assert client.get(path).status_code == 200
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
