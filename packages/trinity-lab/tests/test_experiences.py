"""What was trained is shown to people and given to other programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models
from trinity.common.experience import EID, Experience
from trinity.runtime.record.run_text import RunText
from trinity.runtime.record.samples import SampleLog
from typer.testing import CliRunner

WORDS = {"<s>": 0, "say": 1, "a": 2, "b": 3, "\x1b[2Jgone\u202e": 4}


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """Return the directory of a run of two steps, two tasks each, two rollouts of a task."""
    log = SampleLog(tmp_path, limit=10**6)
    for step in (1, 2):
        rows = [
            Experience(
                tokens=[0, 1, 2 + run],
                prompt_length=2,
                eid=EID(batch=step, task=task, run=run),
                logprobs=[-0.5],
                reward=float(run),
                advantages=[run - 0.5],
                metrics={"accuracy": float(run)},
                info={"model_version": step - 1},
            )
            for task in range(2)
            for run in range(2)
        ]
        log.trained(step, rows)
    return tmp_path


@pytest.fixture
def with_words(run_dir) -> Path:
    folder = run_dir / "global_step_2" / "actor" / "huggingface"
    folder.mkdir(parents=True)
    Tokenizer(models.WordLevel(WORDS, unk_token="<s>")).save(str(folder / "tokenizer.json"))
    return run_dir


def call(*arguments: object):
    from trinity.cli.main import app

    return CliRunner().invoke(app, ["experiences", *map(str, arguments)])


def test_a_step_is_shown_with_its_texts_rewards_and_advantages(with_words) -> None:
    said = call(with_words, "--step", 2, "--task", "2/1").output

    assert said == (
        "step 2  2/1/0/0  reward 0  advantage -0.5  trained 1 of 1 tokens\n"
        "    <s> say\n  ->\n    a\n\n"
        "step 2  2/1/1/0  reward 1  advantage 0.5  trained 1 of 1 tokens\n"
        "    <s> say\n  ->\n    b\n\n"
    )


def test_without_a_tokenizer_the_token_ids_are_shown(run_dir) -> None:
    said = call(run_dir, "--task", "1/0/1").output

    assert "    0 1\n  ->\n    3\n" in said


def test_a_models_text_cannot_steer_the_terminal(with_words) -> None:
    row = Experience(tokens=[1, 4], prompt_length=1, eid=EID(batch=3), reward=0.0)
    SampleLog(with_words, limit=10**6).trained(3, [row])

    said = call(with_words, "--step", 3).output

    assert "\\x1b[2Jgone\\u202e" in said
    assert "\x1b" not in said


def test_json_lines_and_parquet_hold_the_same_rows(with_words, tmp_path) -> None:
    import pyarrow.parquet as pq

    assert call(with_words, "--format", "jsonl", "-o", tmp_path / "x.jsonl").exit_code == 0
    said = call(with_words, "--format", "parquet", "-o", tmp_path / "x.parquet").output

    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == rows
    assert len(rows) == 8
    assert said == f"{tmp_path / 'x.parquet'}: 8 samples\n"
    first = rows[0]
    assert (first["prompt"], first["response"], first["tokens"]) == ("<s> say", "a", [0, 1, 2])
    assert (first["task"], first["run"], first["advantage"]) == ("1/0", "0", -0.5)
    assert json.loads(first["info"]) == {"model_version": 0}


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("1/0", ["1/0-judge/0/0", "1/0-solver/0/0", "1/0-solver/1/0"]),
        ("1/0/1", ["1/0-solver/1/0"]),
        ("1/0-judge", ["1/0-judge/0/0"]),
        ("1", ["1/0-judge/0/0", "1/0-solver/0/0", "1/0-solver/1/0", "1/10-solver/0/0"]),
    ],
)
def test_a_task_is_found_in_the_groups_of_all_its_agents(task, found, tmp_path) -> None:
    groups = [("0-judge", 0), ("0-solver", 0), ("0-solver", 1), ("10-solver", 0)]
    rows = [
        Experience(tokens=[0, 1], prompt_length=1, eid=EID(batch=1, task=group, run=run))
        for group, run in groups
    ]
    SampleLog(tmp_path, limit=10**6).trained(1, rows)

    shown = call(tmp_path, "--task", task, "--format", "jsonl")
    eids = [json.loads(line)["eid"] for line in shown.stdout.splitlines()]
    assert sorted(eids) == found


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--step", "9"], "has samples of the steps 1 to 2, not of step 9"),
        (["--task", "7/7"], "task 7/7 has no samples"),
        (["--task", "1/0", "--step", "2"], ", step 2: task 1/0 has no samples"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(options, part, run_dir) -> None:
    assert part in str(call(run_dir, *options).exception)


def test_a_file_of_the_run_is_never_written_over(run_dir) -> None:
    [block] = (run_dir / "samples").iterdir()
    before = block.read_bytes()

    said = str(call(run_dir, "--format", "jsonl", "-o", block).exception)

    assert said.startswith(
        f"{block} exists in the run directory {run_dir} and may be a file of the run"
    )
    assert block.read_bytes() == before
    assert call(run_dir, "--format", "jsonl", "-o", run_dir / "new.jsonl").exit_code == 0


@pytest.mark.parametrize("form", ["text", "jsonl", "parquet"])
def test_what_cannot_be_written_whole_leaves_the_file_that_was_there(
    run_dir, form, tmp_path_factory
) -> None:
    folder = tmp_path_factory.mktemp("out")
    (folder / "mine").write_text("as it was")
    [block] = (run_dir / "samples").iterdir()
    content = bytearray(block.read_bytes())
    content[-3] ^= 1  # of the second step
    block.write_bytes(content)

    ended = call(run_dir, "--format", form, "-o", folder / "mine")
    none = call(run_dir, "--task", "7/7", "--format", form, "-o", folder / "mine")

    assert ended.exit_code == none.exit_code == 1
    said = str(ended.exception)
    assert said.startswith(f"{block}: the samples of step 2 are damaged: their checksum differs. ")
    assert said.endswith("Put the file back from a copy; its other steps can be read.")
    assert [one.name for one in folder.iterdir()] == ["mine"]
    assert (folder / "mine").read_text() == "as it was"


def test_a_pipe_that_is_named_is_written_to(run_dir, tmp_path_factory) -> None:
    pipe = tmp_path_factory.mktemp("out") / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        said = call(run_dir, "--format", "jsonl", "-o", pipe).output
        assert len(reader.stdout.read().splitlines()) == 8

    assert said == f"{pipe}: 8 samples\n"
    assert pipe.is_fifo()
    assert (
        "a parquet file needs --output FILE"
        in call(run_dir, "--format", "parquet", "-o", pipe).output
    )


@pytest.mark.acceptance
def test_the_standard_output_has_the_rows_and_nothing_else(run_dir) -> None:
    command = [sys.executable, "-m", "trinity", "experiences", str(run_dir), "--format", "jsonl"]
    for more in ([], ["-o", "/dev/stdout"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        assert len([json.loads(line) for line in done.stdout.splitlines()]) == 8


def test_a_run_without_samples_says_where_else_to_look(tmp_path) -> None:
    said = str(call(tmp_path).exception)

    assert "buffer.record_samples was off" in said
    assert "buffer/explorer_output.jsonl" in said


def test_of_a_run_that_only_evaluates_it_is_said_where_its_samples_are_shown(tmp_path) -> None:
    (tmp_path / "bench").mkdir()

    assert f"`trinity view {tmp_path}` shows what its evaluations" in str(call(tmp_path).exception)


def test_a_folder_that_is_not_there_is_said_so(tmp_path) -> None:
    said = str(call(tmp_path / "typo").exception)

    assert said == f"there is no folder {tmp_path / 'typo'}. Name a run directory."


def test_several_stages_are_named(run_dir, tmp_path) -> None:
    for name in ("sft", "grpo"):
        (tmp_path / "two" / name).mkdir(parents=True)
        (run_dir / "samples").rename(tmp_path / "two" / name / "samples") if name == "sft" else None
    SampleLog(tmp_path / "two" / "grpo", limit=10**6).trained(
        1, [Experience(tokens=[1, 2], prompt_length=1, reward=1.0)]
    )

    said = str(call(tmp_path / "two").exception)

    two = tmp_path / "two"
    assert said == (
        f"{two} has 2 stages or runs with samples. Name one:\n"
        f"  {two / 'grpo'}  (train steps 1 to 1)\n  {two / 'sft'}  (train steps 1 to 2)"
    )


@pytest.mark.parametrize("place", ["grpo", "run/grpo"])
def test_the_only_stage_with_samples_need_not_be_named(place, run_dir, tmp_path) -> None:
    stage = tmp_path / "project" / place
    stage.mkdir(parents=True)
    (stage.parent / "sft").mkdir()
    (run_dir / "samples").rename(stage / "samples")

    assert "step 1  1/0/0/0" in call(tmp_path / "project").output


def test_tokens_that_share_a_letter_give_it_once(tmp_path) -> None:
    letters = {"a": 0, "Ã": 1, "¼": 2, "Ġb": 3}  # bytes as GPT-2 writes them: ü is Ã¼
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = RunText(tmp_path / "tokenizer.json")

    assert text.pieces([0, 1, 2, 3]) == ["a", "", "ü", " b"]
    assert text.decode([0, 1, 2, 3]) == "aü b"
    assert text.pieces([0, 1]) == ["a", "\ufffd"]
