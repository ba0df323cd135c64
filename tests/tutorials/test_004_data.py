"""004: datasets as ``datasets.load_dataset`` reads them, splits by file name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from trinity.buffer.task_source import Taskset
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


def test_P032_a_folder_that_names_its_splits_gives_tasks_for_each(tmp_path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({"question": "2 + 2?"}) + "\n")
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "3 + 3?"}) + "\n")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')

    questions = [
        Taskset(TasksetConfig(path=str(tmp_path), split=split)).task(0).raw_task["question"]
        for split in ("train", "test")
    ]

    assert questions == ["2 + 2?", "3 + 3?"]


@pytest.fixture
def hub_cache(tmp_path, tiny_model) -> dict[str, str]:
    """Return the environment of a Hugging Face cache that holds one model and one dataset."""
    hub = tmp_path / "hub"
    model = _snapshot(hub / "models--tutorial--tiny")
    shutil.copytree(tiny_model, model, dirs_exist_ok=True)
    dataset = _snapshot(hub / "datasets--tutorial--sums")
    (dataset / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n"
        "    path: main/train.jsonl\n---\n"
    )
    (dataset / "main").mkdir()
    rows = [json.dumps({"question": f"{n} + 1 =", "answer": str(n + 1)}) for n in range(8)]
    (dataset / "main" / "train.jsonl").write_text("\n".join(rows) + "\n")
    return {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(hub),
        "HF_DATASETS_CACHE": str(tmp_path / "datasets"),
    }


def _snapshot(repository: Path) -> Path:
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123")
    (repository / "snapshots" / "0123").mkdir(parents=True)
    return repository / "snapshots" / "0123"


@pytest.mark.slow
@pytest.mark.acceptance
def test_P118_and_P159_ids_of_a_model_and_a_dataset_are_read_from_the_cache_without_a_network(
    hub_cache, config_dict, taskset, write_yaml, trinity_program, status_of
) -> None:
    config_dict["model"]["model_path"] = "tutorial/tiny"
    taskset |= {"path": "tutorial/sums", "subset_name": "main"}

    path = write_yaml(config_dict)
    ended = trinity_program("run", "--local", "--config", path, env=hub_cache)

    assert ended.returncode == 0, ended.stderr
    assert status_of()["trained_experiences"] == 32


def test_P118_an_id_that_is_not_in_the_cache_is_one_clear_error(
    config_dict, write_yaml, trinity, monkeypatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config_dict["model"]["model_path"] = "tutorial/nobody-has-this"

    ended = trinity("run", "--local", "--config", write_yaml(config_dict))

    assert ended.code == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Error: the model 'tutorial/nobody-has-this' cannot be loaded: ")
    assert "in the cache or can be downloaded" in line
