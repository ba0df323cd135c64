"""Explorers fill a SQL buffer, and later a trainer trains once on what is there: nobody waits."""

from __future__ import annotations

import copy
import json
import shutil
import signal
import sqlite3
from contextlib import closing

import pytest
import trinity
from trinity.common.config import load_config
from trinity.errors import ConfigError
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.result import RunStatus
from trinity_testing.history import read_history

pytestmark = pytest.mark.slow
NUM, BATCH = 32, 12  # experiences that an explorer gives, and that a train step takes


@pytest.fixture
def run(config_dict, write_yaml):
    """Return a function that runs a mode over one SQL buffer, which nobody waits at."""
    buffer = {"storage_type": "sql"}
    config_dict["buffer"] |= {"batch_size": 2, "trainer_input": {"experience_buffer": buffer}}
    config_dict["synchronizer"] = {"standalone": False}
    config_dict["algorithm"]["optimizer"]["lr_scheduler_type"] = "cosine"  # wants all steps known

    def once(mode, *overrides, local=True):
        path = write_yaml(a_config(config_dict, mode), f"{mode}.yaml")
        return trinity.run(load_config(path, overrides=overrides), local=local)

    return once


@pytest.fixture(scope="module")
def dying(forks):
    """Return a function that runs a file in a process that may be killed; see ``dying_runs.py``."""
    return lambda config, at="", **place: forks(config=str(config), at=at, **place)


def a_config(config_dict, mode):
    config = copy.deepcopy(config_dict) | {"mode": mode, "trainer": {"save_interval": 1}}
    if mode == "train":
        config["buffer"]["train_batch_size"] = BATCH
    return config


def lines_of(directory):
    rows = read_metrics(directory / "monitor")
    return [{k: v for k, v in row.items() if "time/" not in k} for row in rows]


def steps_in(run_dir):
    """Return the ids of each optimizer step as the ledger tells them; of step None, what waits."""
    query = "SELECT train_step, uid FROM experience ORDER BY train_step, train_place"
    with closing(sqlite3.connect(run_dir / "buffer/ledger.db")) as ledger:
        rows = ledger.execute(query).fetchall()
    return {step: [uid for at, uid in rows if at == step] for step in {at for at, _ in rows}}


def assert_each_once(run_dir, *, num=NUM):
    """Hold that each experience was trained in one step, and that the history tells the same."""
    steps = steps_in(run_dir)
    uids = [uid for trained in steps.values() for uid in trained]
    assert len(uids) == len(set(uids)) == num
    assert read_history(run_dir) == [steps[number] for number in sorted(steps)]


@pytest.mark.acceptance
def test_it_is_what_is_trained_on_the_same_experiences_in_a_file(
    run, config_dict, write_yaml, run_dir, tmp_path
) -> None:
    run("explore")
    run("train")
    buffer = {"storage_type": "file", "path": str(tmp_path / "experiences.jsonl")}
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": buffer}
    for mode in ("explore", "train"):
        config = a_config(config_dict, mode) | {"name": mode}
        trinity.run(load_config(write_yaml(config)), local=True)

    assert lines_of(run_dir) == lines_of(run_dir.with_name("train"))


@pytest.mark.acceptance
def test_a_second_start_says_that_it_is_finished_and_trains_nothing(run, run_dir, capsys) -> None:
    run("explore")
    run("train")
    weights = (run_dir / "global_step_3/actor/huggingface/model.safetensors").read_bytes()
    capsys.readouterr()

    again = run("train")

    assert again.stages[0].was_finished_before
    assert "is finished" in " ".join(capsys.readouterr().out.split())
    assert_each_once(run_dir)
    kept = (run_dir / "global_step_3/actor/huggingface/model.safetensors").read_bytes()
    assert kept == weights


@pytest.mark.acceptance
def test_what_explorers_left_is_trained_once_and_the_run_ends_until_more_steps_are_asked_for(
    run, run_dir, capsys
) -> None:
    run("explore")
    trained = run("train")
    status = json.loads((run_dir / "run.json").read_text())
    assert (trained.status, status["train_steps"]) == (RunStatus.FINISHED, status["total_steps"])
    explored = run("explore", "explorer.name=two")
    assert explored.directory == run_dir / "explorers/two"

    run("train", "trainer.total_steps=9")

    assert "waits for" not in capsys.readouterr().out
    assert [len(step) for step in read_history(run_dir)] == [12, 12, 8, 12, 12, 8]
    assert_each_once(run_dir, num=2 * NUM)


@pytest.mark.acceptance
def test_contents_stay_so_that_a_training_can_begin_from_them_anew(run, run_dir) -> None:
    run("explore")
    run("train")
    before = read_history(run_dir)
    for path in run_dir.iterdir():
        if path.name not in {"buffer", "explorers"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    run("train", "algorithm.optimizer.lr=1e-4")

    assert read_history(run_dir) == before
    assert_each_once(run_dir)


CLAIM = "trinity_ledger.ledger:Ledger.claim"
TRAIN = "trinity.trainer.torch_trainer:TorchTrainer.train_step"
KEEP = "trinity_ledger.ledger:Ledger.keep"
REPLACE = "trinity.runtime.record.checkpoint:CheckpointStore._replace"
STOP = signal.SIGINT


@pytest.mark.acceptance
def test_a_trainer_that_is_stopped_and_killed_trains_nothing_twice(
    run, dying, config_dict, write_yaml, run_dir
) -> None:
    run("explore")
    config = write_yaml(a_config(config_dict, "train"))
    for at in (CLAIM, TRAIN, KEEP, REPLACE):
        killed = dying(config, at, call=1, side="after")
        assert killed["code"] == -signal.SIGKILL, killed["said"]
    stopped = dying(config, TRAIN, call=1, side="before", signal=STOP)
    assert stopped["code"] == 130, stopped["said"]
    assert json.loads((run_dir / "run.json").read_text())["status"] == "interrupted"
    killed = dying(config, CLAIM, call=1, side="after")
    assert killed["code"] == -signal.SIGKILL, killed["said"]

    ended = dying(config)

    assert ended["code"] == 0, ended["said"]
    assert [len(step) for step in read_history(run_dir)] == [12, 12, 8]
    assert_each_once(run_dir)


@pytest.mark.acceptance
def test_an_explorer_that_is_killed_and_goes_on_leaves_each_experience_once(
    run, dying, config_dict, write_yaml, run_dir
) -> None:
    config = write_yaml(a_config(config_dict, "explore"))
    for at in (
        "trinity_ledger.ledger:Ledger.write",
        "trinity.runtime.checkpoint_writer:CheckpointWriter.save",
    ):
        killed = dying(config, at, call=2, side="after")
        assert killed["code"] == -signal.SIGKILL, killed["said"]
    assert dying(config)["code"] == 0

    run("train")

    assert_each_once(run_dir)


def test_a_buffer_that_is_missing_or_empty_is_named_before_a_model_is_loaded(
    run, run_dir, tmp_path, monkeypatch
) -> None:
    def load(*_, **__):
        raise AssertionError("a trainer is made")

    monkeypatch.setattr("trinity.runtime.build.make_trainer", load)
    path = "buffer.trainer_input.experience_buffer.path"
    with pytest.raises(ConfigError, match=r"there is no ledger .*buffer/ledger.db, .* Fill it fir"):
        run("train")
    assert not (run_dir / "buffer/ledger.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(ConfigError, match=r"empty.db has no trainable experiences"):
        run("train", f"{path}={tmp_path}/empty.db")


def test_a_buffer_of_another_run_is_refused_by_name(run, run_dir) -> None:
    run("explore", "name=other")
    path = run_dir.with_name("other") / "buffer/ledger.db"

    with pytest.raises(
        ConfigError, match=r"belongs to run 'e2e/other', but this run is 'e2e/tiny'"
    ):
        run("train", f"buffer.trainer_input.experience_buffer.path={path}")


@pytest.mark.ray
@pytest.mark.acceptance
def test_it_is_the_same_over_ray(run, run_dir) -> None:
    for name, local in (("name=local", True), ("name=tiny", False)):
        for mode in ("explore", "train"):
            assert run(mode, name, local=local).status is RunStatus.FINISHED

    assert lines_of(run_dir) == lines_of(run_dir.with_name("local"))
    assert_each_once(run_dir)
