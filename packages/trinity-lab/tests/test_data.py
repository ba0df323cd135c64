"""``trinity data``: what is wrong with a data set, row by row."""

from __future__ import annotations

import json
import re

import pytest


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, rows) -> str:
        path = tmp_path / name
        lines = [json.dumps({"prompt": prompt, "response": answer}) for prompt, answer in rows]
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write_file


def test_each_kind_of_bad_row_is_named_with_its_place(call, write) -> None:
    file = write(
        "train.jsonl",
        [
            ("1 + 1 =", "2"),
            (None, "2"),
            ("  ", "3"),
            ("2 + 2 =", None),
            ("2 + 3 =", ""),
            ("1  + 1 =", "2"),
            ("1 + 1 =", "3"),
        ],
    )

    result = call("data", file, "--eval", write("test.jsonl", [("1 + 1 =", "2"), ("9", "9")]))

    assert result.exit_code == 1
    assert result.stdout.replace(file, "F").splitlines()[:15] == [
        "F: 7 rows",
        "problem: 1 row with a null prompt",
        "  F, row 2",
        "problem: 1 row with an empty prompt",
        "  F, row 3",
        "problem: 1 row with a null answer",
        "  F, row 4",
        "problem: 1 row with an empty answer",
        "  F, row 5",
        "problem: 1 row with the prompt and the answer of an earlier row",
        "  F, row 6",
        "problem: 1 row with the prompt of an earlier row and another answer",
        "  F, row 7",
        "problem: 1 of 2 evaluation rows are training rows too",
        f"  {file.replace('train', 'test')}, row 1",
    ]


def test_a_one_sided_set_of_labels_is_a_problem(call, write) -> None:
    rows = [(f"question {n}", "no" if n == 7 else "yes") for n in range(20)]

    said = call("data", write("a.jsonl", rows)).stdout

    assert "problem: 2 different answers: 'yes' 95%, 'no' 5%" in said
    assert "A model that always says 'yes' is right in 95%" in said


def test_tokens_are_counted_and_long_prompts_named(call, write, tmp_path) -> None:
    from trinity_testing.tiny import make_tiny_tokenizer

    make_tiny_tokenizer(vocab=384).save_pretrained(tmp_path / "model")
    file = write("a.jsonl", [("abc", str(n)) for n in range(3)] + [("long " * 50, "9")])

    said = call("data", file, "--model", tmp_path / "model", "--max-tokens", 40).stdout

    found = re.search(r"note: tokens of a prompt: median 3, 95 % up to (\d+), most (\d+)", said)
    assert found, said
    assert int(found[1]) <= int(found[2])
    assert "problem: 1 row with more than 40 tokens" in said
    assert f"  {file}, row 4" in said


def test_a_clean_set_is_said_to_be_clean(call, write) -> None:
    result = call("data", write("a.jsonl", [("a", "1"), ("b", "2"), ("c", "3")]))

    assert result.exit_code == 0
    assert "no problem found" in result.stdout


def test_a_wrong_column_is_named(call, write) -> None:
    result = call("data", write("a.jsonl", [("a", "1")]), "--prompt-key", "question")

    assert "columns are prompt, response; name one with --prompt-key" in str(result.exception)
