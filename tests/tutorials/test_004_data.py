"""004: datasets as ``datasets.load_dataset`` reads them, splits by file name."""

from __future__ import annotations

import json

from trinity.buffer.taskset import Taskset
from trinity.common.config import TasksetConfig


def test_P032_and_P098_a_folder_gives_each_split_its_own_tasks(tmp_path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({"question": "What is 2 + 2?"}) + "\n")
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "What is 3 + 3?"}) + "\n")

    questions = []
    for split in ("train", "test"):
        config = TasksetConfig(
            path=str(tmp_path),
            split=split,
            format={"prompt_key": "question"},
            default_workflow_type="simple_workflow",
        )
        questions.append(Taskset(config).task(0).raw_task["question"])

    assert questions == ["What is 2 + 2?", "What is 3 + 3?"]


def test_P055_and_P135_one_file_and_its_folder_give_the_same_rows(tmp_path) -> None:
    row = {"question": "1+1=", "answer": "2"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")

    raw = [
        Taskset(
            TasksetConfig(
                path=str(path),
                format={"prompt_key": "question"},
                default_workflow_type="simple_workflow",
            )
        )
        .task(0)
        .raw_task
        for path in (tmp_path / "rows.jsonl", tmp_path)
    ]

    assert raw == [row, row]
