"""Which run of a service belongs to a run directory, how far it is, and what it is told."""

from __future__ import annotations

import pytest
from trinity.errors import ConfigError
from trinity_monitors.mlflow_monitor import MlflowMonitor
from trinity_monitors.package import imported
from trinity_monitors.place import Place
from trinity_monitors.story import Story

CONFIG = """
project: p
group: ""
name: n
seed: 1
explorer: {env_vars: {TOKEN: x}, rollout_model: {engine_type: transformers, api_key: x}}
monitor: {monitor_type: wandb, monitor_args: {api_key: x}}
trainer: {max_token_len_per_gpu: 9, auth_token: x}
"""


@pytest.fixture
def directory(tmp_path):
    """Return the monitors' folder of a run with a configuration."""
    folder = tmp_path / "p" / "n" / "monitor"
    folder.mkdir(parents=True)
    (folder.parent / "config.yaml").write_text(CONFIG)
    return folder


def test_no_secret_is_among_the_settings(directory) -> None:
    story = Story.of(directory)

    assert (story.project, story.group, story.name, story.stage) == ("p", "", "n", "")
    assert story.title("trainer") == "n_trainer"
    assert story.flat() == {
        "project": "p",
        "group": "",
        "name": "n",
        "seed": 1,
        "explorer.rollout_model.engine_type": "transformers",
        "monitor.monitor_type": "wandb",
        "trainer.max_token_len_per_gpu": 9,
    }


def test_a_stage_is_named_in_its_runs(directory) -> None:
    stage = directory.parent / "warmup"
    stage.mkdir()
    (stage / "config.yaml").write_text(CONFIG)

    assert Story.of(stage / "monitor").title("trainer") == "n_warmup_trainer"


def test_steps_that_are_made_again_are_known_also_to_the_next_process(tmp_path) -> None:
    path = tmp_path / "monitor" / "wandb-trainer.jsonl"
    place = Place(path)
    place.begin("abc")
    place.note(1, ["a", "b"])
    place.note(2, ["a", "b"])

    again = Place(path)

    assert again.run_id == "abc"
    assert again.has(1, ["a", "b"])
    assert again.has(2, ["b", "a"])
    assert not again.has(2, ["eval/a"])  # the evaluation after step 2 was not reached
    assert not again.has(3, ["a", "b"])


def test_what_is_measured_afterwards_at_earlier_steps_is_not_known(tmp_path) -> None:
    path = tmp_path / "wandb-explorer.jsonl"
    place = Place(path)
    place.begin("abc")
    place.note(4, ["rollout/reward/mean", "time/explore"])

    bench = Place(path)

    for step in (0, 2, 4):
        assert not bench.has(step, ["bench/rows/reward/mean"])
        bench.note(step, ["bench/rows/reward/mean"])
    assert bench.has(2, ["rollout/reward/mean", "time/explore"])
    assert Place(path).has(2, ["bench/rows/reward/mean"])


def test_a_line_of_an_older_file_counts_for_all_names(tmp_path) -> None:
    path = tmp_path / "wandb-trainer.jsonl"
    path.write_text('{"run_id": "abc"}\n{"step": 2, "names": "0011223344556677"}\n')

    assert Place(path).has(1, ["a"])
    assert not Place(path).has(2, ["a"])


def test_a_line_that_a_kill_cut_short_is_written_again(tmp_path) -> None:
    path = tmp_path / "wandb-trainer.jsonl"
    place = Place(path)
    place.begin("abc")
    place.note(1, ["a"])
    place.note(2, ["a"])
    path.write_text(path.read_text()[:-9])

    again = Place(path)

    assert again.run_id == "abc"
    assert again.has(1, ["a"])
    assert not again.has(2, ["a"])


def test_a_missing_package_is_one_clear_error(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)

    with pytest.raises(ConfigError, match=r"Run: pip install 'trinity-monitors\[wandb\]'$"):
        imported("wandb")


def test_a_server_that_nobody_listens_at_is_refused_at_once(tmp_path) -> None:
    pytest.importorskip("mlflow", reason="pip install 'trinity-monitors[mlflow]'")

    with pytest.raises(ConfigError, match=r"no MLflow server answers at http://127\.0\.0\.1:9"):
        MlflowMonitor(directory=tmp_path, role="trainer", uri="http://127.0.0.1:9")
