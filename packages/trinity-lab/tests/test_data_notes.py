"""What ``trinity config check`` says of the files of tasks."""

from __future__ import annotations

import json

import pytest
from trinity.common.config import Config
from trinity_lab.data_notes import data_notes


@pytest.fixture
def notes(tmp_path):
    """Return a function that gives the notes of a file of twenty rows, some of it held out."""
    rows = [{"q": f"{n} + {n} =", "a": str(2 * n)} for n in range(20)]

    def make(
        *,
        split: str = "train[:90%]",
        held_out: str = "train[90%:]",
        path: str = "",
        key: str = "q",
        workflow: str = "",
        **buffer,
    ) -> list:
        file = tmp_path / "all.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        section = {"name": "t", "path": path or str(file)}
        section["format"] = {"prompt_key": key, "response_key": "a"}
        section["default_workflow_type"] = workflow or None
        inputs = {
            "tasksets": [section | {"split": split}],
            "eval_tasksets": [section | {"split": held_out, "name": "e"}],
        }
        buffer["explorer_input"] = inputs
        return data_notes(Config.model_validate({"mode": "both", "buffer": buffer}))

    make.rows = rows
    return make


def test_a_part_that_is_held_out_is_told_apart(notes) -> None:
    assert notes() == [
        "data all.jsonl, split train[:90%]: 18 rows; none of 2 evaluation rows is a training row"
    ]


def test_parts_that_overlap_are_a_note_with_the_row(notes, tmp_path) -> None:
    line, note = notes(held_out="train[-4:]")

    assert line == "data all.jsonl, split train[:90%]: 18 rows"
    assert note == (
        f"note: data all.jsonl, split train[:90%]: 2 of 4 evaluation rows are training rows too "
        f"({tmp_path}/all.jsonl, row 17)"
    )


def test_an_empty_prompt_is_named_by_its_line_in_the_file(notes, tmp_path) -> None:
    notes.rows[3]["q"] = ""
    said = notes(split="train[2:10]")

    assert f"1 row with an empty prompt ({tmp_path}/all.jsonl, row 4)" in said[1]


def test_a_column_that_a_workflow_of_one_turn_asks_with_and_no_row_has_is_a_note(notes) -> None:
    [note] = notes(key="prompt")

    assert note == (
        "note: data all.jsonl: no row has the column 'prompt', which format.prompt_key names, and "
        "simple_workflow asks with it. Columns: a, q"
    )
    assert notes(key="prompt", workflow="text_world") == []  # reads its rows itself


def test_a_key_that_the_check_refuses_is_not_noted_too(notes) -> None:
    assert notes(key="quest") == []


def test_a_step_of_more_tasks_than_there_are_rows_is_a_note(notes) -> None:
    """Two rows for 128 tasks a step: 64 times each."""
    few = {"split": "train[:2]", "batch_size": 128}

    assert notes(**few, total_steps=9)[-1] == (
        "note: buffer.batch_size is 128, and there are 2 rows of tasks: a step asks each of them "
        "up to 64 times"
    )
    assert not any("a step asks" in one for one in notes(**few))  # an epoch has each once
    assert not any("a step asks" in one for one in notes(batch_size=18, total_steps=9))


@pytest.mark.parametrize("path", ["someone/data-set", "missing.jsonl"])
def test_what_is_not_on_this_disk_is_left_out(notes, path) -> None:
    assert notes(path=path) == []
