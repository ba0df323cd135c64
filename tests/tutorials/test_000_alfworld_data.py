"""000 and 001: the games and their files, as the guides name them; no engine is needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

alfworld = pytest.importorskip("trinity_envs_alfworld")
ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/grpo_alfworld"
SCRIPT = f"{EXAMPLE}/get_alfworld_data.py"
YAMLS = [f"{EXAMPLE}/alfworld.yaml", "examples/grpo_alfworld_general_multi_step/alfworld.yaml"]


@pytest.fixture(scope="module")
def games(tmp_path_factory) -> Path:
    """Return a data folder with three games of each split, as far as a dataset looks."""
    root = tmp_path_factory.mktemp("games")
    for split in ("train", "valid_seen", "valid_unseen"):
        for trial in range(3):
            kind = "pick_and_place_simple"
            place = root / "json_2.1.1" / split / f"{kind}-Mug-None-Desk-301" / f"trial_T{trial}"
            place.mkdir(parents=True)
            (place / "game.tw-pddl").write_text(json.dumps({"solvable": True}))
            (place / "traj_data.json").write_text(json.dumps({"task_type": kind}))
    return root


@pytest.fixture(scope="module")
def repository(tmp_path_factory, games) -> Path:
    """Return a copy of the example's files, in which the published command was called."""
    root = tmp_path_factory.mktemp("repository")
    for file in (SCRIPT, "scripts/data_prepare/get_alfworld_data.py", *YAMLS):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    write_rows(SCRIPT, root, games)
    return root


def write_rows(script, root, games):
    env = os.environ | {"ALFWORLD_DATA": str(games)}
    command = [sys.executable, script]
    subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, timeout=120)


def files_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_P027_what_is_missing_is_named_with_and_without_the_variable(
    trinity, tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    without = trinity("plugins", "check", "alfworld")
    with_one = trinity("plugins", "check", "alfworld", ALFWORLD_DATA=str(tmp_path / "nowhere"))

    for ended, folder in ((without, tmp_path / "home"), (with_one, tmp_path / "nowhere")):
        assert ended.code == 1
        said = " ".join(ended.stdout.split())
        assert "assets.alfworld" in said
        assert "trinity plugins setup alfworld" in said or "pip install" in said
        assert str(folder) in said or "pip install" in said  # where the engine is missing, too


@pytest.mark.slow
def test_P028_rows_are_read_by_datasets_and_name_a_game_file(repository, tmp_path) -> None:
    from datasets import load_dataset

    folder = repository / EXAMPLE / "alfworld_data"

    files = {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
    data = load_dataset("json", data_files=files, cache_dir=str(tmp_path))

    assert set(data["train"].column_names) == {"game_file", "target"}
    assert (len(data["train"]), len(data["test"])) == (3, 3)
    assert data["train"][0]["game_file"].endswith("game.tw-pddl")
    assert json.loads((folder / "dataset_dict.json").read_text())["splits"][:2] == ["train", "test"]


@pytest.mark.slow
def test_P033_the_older_script_writes_the_same_files(repository, games) -> None:
    folder = repository / EXAMPLE / "alfworld_data"
    first = files_of(folder)
    shutil.rmtree(folder)

    write_rows("scripts/data_prepare/get_alfworld_data.py", repository, games)

    assert files_of(folder) == first


@pytest.mark.slow
@pytest.mark.parametrize("yaml", YAMLS)
def test_P029_P036_P037_and_P120_with_the_data_only_a_machine_and_a_model_are_missing(
    yaml, repository, trinity, monkeypatch
) -> None:
    monkeypatch.chdir(repository)

    ended = trinity("config", "check", yaml)

    assert ended.code == 0, ended.stdout
    notes = [line for line in ended.stdout.splitlines() if "note: asked" in line]
    assert all("GPU" in line for line in notes)
    assert "alfworld_data" not in ended.stdout


def test_P029_each_value_of_the_published_yaml_is_in_ours() -> None:
    import yaml

    ours = yaml.safe_load((ROOT / YAMLS[1]).read_text())

    assert ours["algorithm"] == {
        "algorithm_type": "multi_step_grpo",
        "repeat_times": 16,
        "optimizer": {"lr": "5e-6"},
    }
    assert ours["buffer"]["train_batch_size"] == 7680
    assert ours["synchronizer"]["sync_style"] == "dynamic_by_explorer"
    replay = ours["buffer"]["trainer_input"]["experience_buffer"]["replay_buffer"]
    assert replay == {
        "enable": True,
        "priority_fn": "linear_decay",
        "priority_fn_args": {"decay": 0.1},
    }


def test_P030_the_readme_shows_our_plot_and_the_stage_that_made_its_start_model() -> None:
    text = (ROOT / EXAMPLE / "README.md").read_text()

    assert "SFT" in text
    plots = re.findall(r"!\[[^\]]*\]\(([^)]+\.png)\)", text)
    assert plots
    assert all((ROOT / EXAMPLE / plot).is_file() for plot in plots)
