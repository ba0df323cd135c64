"""Recipes of the published cookbook run unmodified, without a network, on a tiny model."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trinity_tinker.base_model import BaseModel
from trinity_tinker.server import TinkerServer

pytest.importorskip("tinker_cookbook", reason="nox -s tinker installs the cookbook")

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

NAME, KEY = "Qwen/Qwen3-8B", "tml-of-a-test"  # the name alone is that of a large model
NUM_ROWS = 128  # the batch of both recipes


def a_chat(number: int) -> dict[str, object]:
    question, answer = f"What comes after {number}?", f"{number + 1} comes after {number}."
    turns = [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def a_sum(number: int) -> dict[str, str]:
    answer = f"{number} + 2 = {number + 2}\n#### {number + 2}"
    return {"question": f"What is {number} + 2?", "answer": answer}


def a_pair(number: int) -> dict[str, str]:
    asked = f"\n\nHuman: What comes after {number}?\n\nAssistant: "
    return {"chosen": f"{asked}{number + 1}.", "rejected": f"{asked}I do not know."}


def a_problem(number: int) -> dict[str, str]:
    return {"question": f"What is {number} + 2?"}


ROWS = {  # of each data set, by the name that recipes load it by
    "HuggingFaceH4/no_robots": a_chat,
    "openai/gsm8k": a_sum,
    "Anthropic/hh-rlhf": a_pair,
    "zwhe99/DeepMath-103K": a_problem,
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder in which transformers and datasets find what recipes ask for by name."""
    from trinity_testing.tiny import make_tiny_model

    make_tiny_model(tmp_path / NAME)
    for name, row in ROWS.items():
        (tmp_path / name).mkdir(parents=True)
        for split in ("train", "test"):
            lines = "\n".join(json.dumps(row(number)) for number in range(NUM_ROWS))
            (tmp_path / name / f"{split}.jsonl").write_text(lines)
    files = "".join(f"  - split: {one}\n    path: {one}.jsonl\n" for one in ("train", "test"))
    (tmp_path / "openai/gsm8k/README.md").write_text(
        f"---\nconfigs:\n- config_name: main\n  data_files:\n{files}---\n"
    )
    return tmp_path


@pytest.fixture
def server(place: Path, tmp_path: Path):
    base = BaseModel(NAME, str(place / NAME))
    made = TinkerServer([base], tmp_path / "data", keys=[KEY])
    yield made
    made.close()


def run_recipe(server: TinkerServer, place: Path, recipe: str, *arguments: str) -> list[dict]:
    """Run a recipe to its end; return its metrics, a step a row."""
    env = {
        **os.environ,
        "TINKER_BASE_URL": server.base_url,
        "TINKER_API_KEY": KEY,
        "TINKER_TELEMETRY": "0",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(place / "cache"),
    }
    command = [sys.executable, "-m", f"tinker_cookbook.recipes.{recipe}"]
    command += [f"model_name={NAME}", f"log_path={place / 'log'}", *arguments]
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=place, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (place / "log" / "metrics.jsonl").read_text().splitlines()
    print(f"{recipe}: {time.monotonic() - started:.0f} s")  # noqa: T201 -- for the table
    return [json.loads(line) for line in lines]


def test_sl_basic_lowers_its_loss(server, place):
    rows = run_recipe(server, place, "sl_basic", "num_epochs=3")

    losses = [row["train_mean_nll"] for row in rows if "train_mean_nll" in row]
    print("sl_basic", losses)  # noqa: T201
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def test_rl_basic_trains_on_all_its_groups(server, place):
    rows = run_recipe(server, place, "rl_basic", "max_tokens=16")

    first = rows[0]
    print("rl_basic", first["env/all/reward/total"])  # noqa: T201
    assert first["progress/done_frac"] == 1.0
    assert first["time/policy_sample:count"] == 16 * NUM_ROWS
    # what samples say about their tokens is what the trainer says before its first step
    assert abs(first["optim/kl_sample_train_v1"]) < 1e-4


def test_dpo_lowers_its_loss(server, place):
    arguments = (
        "batch_size=32",
        "learning_rate=1e-3",
        "max_steps=4",
        f"reference_model_name={NAME}",
    )
    rows = run_recipe(server, place, "preference.dpo.train", *arguments)

    losses = [row["dpo_loss"] for row in rows if "dpo_loss" in row]
    print("preference.dpo", losses)  # noqa: T201
    assert losses[0] == pytest.approx(math.log(2), abs=1e-4)  # policy and reference are equal
    assert losses[-1] < losses[0]


def test_on_policy_distillation_begins_with_a_student_equal_to_its_teacher(server, place):
    arguments = (f"teacher_model={NAME}", "groups_per_batch=32", "max_tokens=8", "max_steps=1")
    arguments += ("lora_rank=8", "eval_every=0", "save_every=0")
    rows = run_recipe(server, place, "distillation.on_policy_distillation", *arguments)

    print("on_policy_distillation", rows[0]["teacher_kl"])  # noqa: T201
    assert abs(rows[0]["teacher_kl"]) < 1e-4


def test_guess_number_plays_several_turns(server, place):
    arguments = ("batch_size=4", "group_size=2", "max_tokens=4", "max_steps=1")
    arguments += ("eval_every=0", "renderer_name=qwen3")
    rows = run_recipe(server, place, "multiplayer_rl.guess_number.train", *arguments)

    print("guess_number", rows[0]["env/all/reward/total"])  # noqa: T201
    assert rows[0]["env/all/turns_per_episode"] > 1
