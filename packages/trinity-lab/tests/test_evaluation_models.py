"""Which models a command means, how a table calls them, and where their evaluations go."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import yaml
from trinity.common.config import Config, probe, resolve_stages
from trinity.common.config.preparation import run_manager
from trinity.errors import ConfigError
from trinity.runtime.record.rundir import RunDir, write_manifests
from trinity_lab.evaluation_folder import with_own_folder
from trinity_lab.models import find_models, taken_as_ids


def a_checkpoint(run: Path, *, step: int, name: str) -> Path:
    """Write the least that a checkpoint of a run is, and return its folder."""
    checkpoint = run / f"global_step_{step}"
    (checkpoint / "actor" / "huggingface").mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    (checkpoint / "manifest.json").write_text("{}")
    (run / "config.yaml").write_text(yaml.safe_dump({"name": name}))
    return checkpoint


def a_config(name: str, *, root: Path, repeat: int = 1) -> Config:
    taskset = {"name": "test", "path": "test.jsonl", "repeat_times": repeat}
    return Config.model_validate(
        {
            "mode": "bench",
            "project": "eval",
            "name": name,
            "checkpoint_root_dir": str(root),
            "buffer": {"explorer_input": {"eval_tasksets": [taskset]}},
        }
    )


def evaluated(config: Config) -> str:
    """Leave what an evaluation leaves of its settings, and return its name."""
    folder = RunDir.of(config).path
    folder.mkdir(parents=True, exist_ok=True)
    (resolved,) = resolve_stages(config, probe(model_path=""), manager=run_manager(config))
    write_manifests(resolved, plugins=[], directory=folder)
    return config.name


def test_an_evaluation_replaces_itself_and_no_other_one(tmp_path) -> None:
    once, four_times = (partial(a_config, root=tmp_path, repeat=repeat) for repeat in (1, 4))

    names = [
        evaluated(with_own_folder(config, "test-model"))
        for config in (once, four_times, once, four_times)
    ]

    assert names == ["test-model", "test-model-2", "test-model", "test-model-2"]


def test_a_name_that_the_user_gave_is_kept(tmp_path) -> None:
    evaluated(a_config("mine", root=tmp_path))

    config = with_own_folder(lambda _: a_config("mine", root=tmp_path, repeat=4), "test-model")

    assert config.name == "mine"


def test_a_stage_is_called_by_its_run_too(tmp_path) -> None:
    stage = a_checkpoint(tmp_path / "addition" / "grpo", step=8, name="addition/grpo")

    (model,) = find_models([str(stage)])

    assert model.label == "addition/grpo/global_step_8"


def test_a_name_that_is_no_folder_is_told_to_be_taken_as_an_id(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "config.json").write_text("{}")

    models = find_models(["there", "nomodel", "api:other"], has_external=True)

    assert taken_as_ids(models) == (
        "\n  there is no folder 'nomodel' here: it is taken as a Hugging Face id."
    )


def test_models_of_one_name_are_told_apart_by_the_folders_above_them(tmp_path) -> None:
    words = [str(a_checkpoint(tmp_path / one / "run", step=8, name="run")) for one in "ab"]
    other = str(a_checkpoint(tmp_path / "b" / "run", step=9, name="run"))

    labels = [model.label for model in find_models([*words, other, words[0]])]

    own = [f"{one}/run/global_step_8" for one in "ab"]
    assert labels == [*own, "run/global_step_9", own[0]]


def test_a_folder_that_is_not_there_is_no_hugging_face_id(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for step in (9, 10):
        a_checkpoint(tmp_path / "run", step=step, name="run")

    for lost in ("run/global_step_7", tmp_path / "run" / "global_step_7"):
        with pytest.raises(
            ConfigError, match=r"no folder .*there are: global_step_9, global_step_10"
        ):
            find_models([str(lost)])
    for lost in ("checkpoints/day/run", "./lost", "lost/", "~/lost"):
        with pytest.raises(ConfigError, match=f"no folder {Path(lost)}, seen from"):
            find_models([lost])
    monkeypatch.chdir(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"no folder global_step_7, .*: global_step_9, "):
        find_models(["global_step_7"])
    assert [one.path for one in find_models(["gpt2"])] == ["gpt2"]


def test_a_hugging_face_id_of_the_cache_is_one_beside_a_folder_of_its_owner_too(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "notes").mkdir(parents=True)
    cached = tmp_path / "hub" / "models--Qwen--Qwen3-0.6B"
    (cached / "snapshots" / "1").mkdir(parents=True)
    (cached / "snapshots" / "1" / "config.json").write_text("{}")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    models = find_models(["Qwen/Qwen3-0.6B", "gpt2", "nobody/here"])

    assert [model.path for model in models] == ["Qwen/Qwen3-0.6B", "gpt2", "nobody/here"]


def test_a_lost_folder_of_one_that_is_there_is_no_hugging_face_id(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()

    for lost in ("checkpoints/lost", "elsewhere/global_step_8", "global_step_8"):
        with pytest.raises(ConfigError, match=f"no folder {lost}, .* hf download {lost}"):
            find_models([lost])
