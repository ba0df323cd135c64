"""Every example can be run as it stands; what the quickstart learns: ``tests/acceptance``."""

from __future__ import annotations

import json
import runpy
import sys
from contextlib import chdir
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
OWN_DATA = {
    "agents",
    "agentscope_tuner",
    "grpo_alfworld",
    "grpo_alfworld_general_multi_step",
    "grpo_webshop",
    "harbor",
}  # of a plugin, or another model
YAMLS = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.parent.name not in OWN_DATA)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["prepare.py"])
        runpy.run_path(str(EXAMPLES / "quickstart" / "prepare.py"), run_name="__main__")
    return folder


@pytest.fixture
def in_prepared(prepared, trinity, monkeypatch):
    """Return the command line, called where the quickstart's files are."""
    monkeypatch.chdir(prepared)
    return trinity


def arguments_of(example: Path) -> list[object]:
    parts = example.parent / "parts"
    return ["--plugin-dir", parts] if parts.is_dir() else []


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_there_are_the_three_examples() -> None:
    names = {path.parent.name for path in YAMLS}

    assert names == {"custom_plugin", "opmd_math", "quickstart"}


@pytest.mark.parametrize("example", YAMLS, ids=lambda path: path.stem)
def test_an_example_is_loaded_resolved_and_found_right(example, in_prepared) -> None:
    ended = in_prepared("config", "check", example, *arguments_of(example))

    assert ended.code == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("example", YAMLS, ids=lambda path: path.stem)
def test_an_example_has_a_readme_that_names_hardware_and_number(example) -> None:
    text = (example.parent / "README.md").read_text()

    assert "**Hardware.**" in text
    assert "**The number to expect.**" in text
    assert f"examples/{example.parent.name}/{example.name}" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        path if path.stem == "quickstart" else pytest.param(path, marks=pytest.mark.acceptance)
        for path in YAMLS
    ],
    ids=lambda path: path.stem,
)
def test_two_steps_of_an_example_run(example, in_prepared, tmp_path) -> None:
    short = ["--set", "buffer.total_steps=2", "--set", f"checkpoint_root_dir={tmp_path}"]

    ended = in_prepared("run", "--local", "--config", example, *arguments_of(example), *short)

    assert ended.code == 0, ended.stdout + ended.stderr
    assert "finished, 2 train steps" in ended.stdout


def test_no_held_out_question_is_trained_on(prepared) -> None:
    folder = prepared / "quickstart_run"
    held_out = {row["question"] for row in rows_of(folder / "test.jsonl")}
    trained = {row["question"] for row in rows_of(folder / "train.jsonl")}
    shown = {row["messages"][0]["content"] for row in rows_of(folder / "sft.jsonl")}

    assert (len(held_out), len(trained)) == (80, 320)
    assert shown == trained
    assert not held_out & trained


def test_most_demonstrations_are_wrong_but_near(prepared) -> None:
    folder = prepared / "quickstart_run"
    truths = {row["question"]: int(row["answer"]) for row in rows_of(folder / "train.jsonl")}
    errors = [
        abs(int(row["messages"][1]["content"]) - truths[row["messages"][0]["content"]])
        for row in rows_of(folder / "sft.jsonl")
    ]

    assert max(errors) == 2
    assert errors.count(0) < 0.3 * len(errors)


def test_the_tokenizer_knows_every_word_of_the_questions(prepared) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepared / "quickstart_run" / "model")
    messages = [{"role": "user", "content": "what is 9 plus 9 ?"}]

    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer.encode(text, add_special_tokens=False)

    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode([*tokenizer.encode("18"), tokenizer.eos_token_id], True) == "18"
    assert len(ids) == 9
