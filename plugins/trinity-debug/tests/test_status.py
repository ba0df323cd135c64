"""How a run stands can be told from its files, of a dead run too."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from trinity.errors import ConfigError, DataError
from trinity.extend import PluginManager, set_manager
from trinity.runtime.record.lock import run_lock
from trinity.runtime.record.logs import logs_to
from trinity.runtime.record.rundir import RunDir
from trinity_debug.status_command import status


@pytest.fixture
def run_dir(tmp_path):
    """Return a function that makes a run directory as a run leaves it."""

    def make(*, mode="both", storage="queue", **given):
        rundir = RunDir(tmp_path / "run")
        rundir.create()
        values = {
            "status": "running", "stage": "", "mode": mode, "asked": [1, None, None],
            "explore_steps": 0, "train_steps": 0, "trained_experiences": 0, "total_steps": 4,
            "seconds": 1.0, "first_evaluation": {}, "evaluation": {}, "buffer": {}, "error": "",
        }  # fmt: skip
        rundir.write_status(values | given, mode=mode)
        buffer = {"trainer_input": {"experience_buffer": {"storage_type": storage}}}
        (rundir.path / "config.yaml").write_text(yaml.safe_dump({"buffer": buffer}))
        rundir.monitor.mkdir()
        rows = [
            {"step": 3, "role": "explorer", "rollout/failed_runs": 1.0},
            {"step": 2, "role": "trainer", "time/train_s": 0.5, "age/max": 2.0},
        ]
        (rundir.monitor / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        return rundir.path

    return make


def test_a_run_that_was_killed_is_told_as_lost(run_dir, capsys) -> None:
    status(run_dir())

    said = capsys.readouterr().out
    assert "run: lost, explore step 3, train step 2 (no living process here, last metrics" in said
    assert "time/train_s 0.5  age/max 2" in said
    assert "last checkpoint: none" in said


def test_a_living_run_is_told_with_its_process(run_dir, capsys) -> None:
    directory = run_dir()
    with run_lock(directory, say=print):
        status(directory)

    assert "run: running, explore step 3, train step 2 (process" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("told", "said"), [("running", "run: running, explore step 3"), ("finished", "run: finished")]
)
def test_a_stage_is_held_by_its_run_while_it_runs(run_dir, capsys, told, said) -> None:
    directory = run_dir(status=told, stage="grpo")
    with run_lock(directory.parent, say=print):
        status(directory)

    shown = capsys.readouterr().out
    assert said in shown
    assert ("process" in shown) is (told == "running")


def test_a_failed_run_says_why_and_nothing_of_processes(run_dir, capsys) -> None:
    status(run_dir(status="failed", train_steps=7, error="DataError: no room"))

    said = capsys.readouterr().out
    assert "run: failed, explore step 0, train step 7 (last metrics" in said
    assert "process" not in said
    assert "DataError: no room" in said


def test_the_newest_evaluation_is_told_with_the_one_before_training(run_dir, capsys) -> None:
    directory = run_dir(status="finished")
    metric = "eval/held_out/reward/mean@4"
    rows = [
        {"step": step, "role": "explorer", metric: value}
        for step, value in ((0, 0.125), (3, 0.5), (4, None))
    ]
    with (directory / "monitor/metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)

    status(directory)

    assert f"  {metric} 0.500 after step 3 (0.125 after step 0)\n" in capsys.readouterr().out


def test_a_run_that_only_evaluates_is_told_without_steps_and_checkpoints(run_dir, capsys) -> None:
    directory = run_dir(mode="bench", status="finished")
    metrics = {"step": 0, "role": "explorer", "bench/test/reward/mean@4": 0.75}
    (directory / "monitor/metrics.jsonl").write_text(json.dumps(metrics) + "\n")

    status(directory)

    said = capsys.readouterr().out
    assert "run: finished (last metrics" in said
    assert "  bench/test/reward/mean@4 0.750\n" in said
    assert "checkpoint" not in said


def test_of_a_folder_of_runs_each_run_is_told(run_dir, tmp_path, capsys) -> None:
    one = run_dir(status="finished", train_steps=7).rename(tmp_path / "one")
    other = run_dir(status="failed", error="DataError: no room").rename(tmp_path / "other")

    status(tmp_path)

    said = capsys.readouterr().out
    assert said.index(f"run directory {one}\n") < said.index(f"run directory {other}\n")
    assert "train step 7" in said
    assert "no room" in said


def test_a_folder_of_runs_has_those_with_stages_and_those_of_explorers(
    run_dir, tmp_path, capsys
) -> None:
    stage = run_dir(status="finished", stage="sft").rename(tmp_path / "sft")
    (tmp_path / "runs" / "staged").mkdir(parents=True)
    stage.rename(tmp_path / "runs" / "staged" / "sft")
    run_dir(status="finished").rename(tmp_path / "runs" / "plain")
    (tmp_path / "runs" / "notes").mkdir()

    status(tmp_path / "runs", as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert [Path(one["directory"]).name for one in told["runs"]] == ["plain", "sft"]


def a_sweep(folder: Path, *directories: str) -> Path:
    folder.mkdir()
    runs = [{"name": one, "directory": one, "settings": {}} for one in directories]
    (folder / "sweep.json").write_text(json.dumps({"schema": 1, "shared": {}, "runs": runs}))
    return folder


def test_of_a_sweep_each_run_has_a_line(run_dir, tmp_path, capsys) -> None:
    run_dir(status="finished", explore_steps=4, train_steps=4)
    sweep = a_sweep(tmp_path / "day.sweep", "run", "refused", "later")
    (sweep / "logs").mkdir()
    (sweep / "logs" / "refused.log").touch()

    status(sweep)

    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("run run: finished, explore step 4, train step 4 (last metrics ")
    assert said[1:] == [
        f"refused has not begun: see {sweep / 'logs' / 'refused.log'}",
        "later has not begun",
    ]


def test_the_runs_of_a_sweep_are_told_as_json(run_dir, tmp_path, capsys) -> None:
    run_dir(status="finished")

    status(a_sweep(tmp_path / "day.sweep", "run", "later"), as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert [Path(one["directory"]).name for one in told["runs"]] == ["run"]


def test_a_damaged_sweep_is_named(tmp_path) -> None:
    (tmp_path / "sweep.json").write_text("[]")

    with pytest.raises(ConfigError, match=r"sweep\.json is damaged: .* Name a run directory"):
        status(tmp_path)


def test_a_run_whose_record_is_damaged_still_says_that_it_has_no_checkpoint(
    run_dir, capsys
) -> None:
    directory = run_dir()
    (directory / "run.json").write_text("{")

    status(directory)

    assert "last checkpoint: none" in capsys.readouterr().out


def test_a_folder_without_a_run_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        status(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no folder .*typo, seen from here"):
        status(tmp_path / "typo")


def test_what_a_failed_start_left_did_not_start(tmp_path) -> None:
    stage = tmp_path / "grpo"
    stage.mkdir()
    (stage / "config.yaml").write_text("name: a")
    with pytest.raises(ConfigError, match=r"grpo did not start\.$"):
        status(stage)
    with pytest.raises(DataError), logs_to(tmp_path, level="info", say=print):
        raise DataError("no rows.\nWrite some.")
    for folder in (stage, tmp_path):
        with pytest.raises(ConfigError, match=rf"{folder} did not start: no rows\. Write some\.$"):
            status(folder)


def test_a_part_of_a_run_that_failed_is_no_run_that_did_not_start(run_dir) -> None:
    directory = run_dir(status="failed", train_steps=7, error="DataError: no room")
    with pytest.raises(DataError), logs_to(directory, level="info", say=print):
        raise DataError("no room")

    with pytest.raises(ConfigError, match="monitor holds no run"):
        status(directory / "monitor")


def test_a_run_with_stages_is_shown_stage_by_stage(run_dir, capsys) -> None:
    stage = run_dir(status="finished", stage="run", train_steps=7)

    status(stage.parent)

    said = capsys.readouterr().out
    assert f"run directory {stage}" in said
    assert "train step 7" in said


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"buffer: {trainer_input: {experience_buffer: sql}}", "experience_buffer is 'sql', no"),
        (b"buffer: {trainer_input: {experience_buffer: []}}", "experience_buffer is [], no"),
        (b"[1]", "it is [1], no mapping"),
        (b"name: \xff", "codec can't decode byte 0xff"),
        (b"at: 2001-99-99", "month must be in 1..12"),
        (b"[" * 5000, "maximum recursion depth"),
    ],
    ids=range(6),
)
def test_a_config_that_no_run_wrote_is_a_note_and_the_rest_is_told(
    run_dir, capsys, config, why
) -> None:
    directory = run_dir()
    (directory / "config.yaml").write_bytes(config)

    status(directory)

    said = capsys.readouterr().out
    assert "run: lost, explore step 3, train step 2" in said
    [note] = [line for line in said.splitlines() if line.startswith("note: ")]
    assert why in note
    assert said.endswith("last checkpoint: none\n")


@pytest.fixture
def core_alone():
    """Let no plugin be installed but the core's own."""
    found = importlib.metadata.entry_points(group="trinity.plugins")
    own = [one for one in found if one.name == "builtin"]
    before = set_manager(PluginManager.discover(env={}, entry_points=own))
    yield
    set_manager(before)


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("sql", "note: no storage named 'sql'"),
        ("of_somebody", ""),
        ("os:kill", ""),  # nothing is imported that a file of strangers names
        ([], ""),
    ],
)
def test_of_a_storage_that_is_not_here_the_line_that_installs_ours_is_told(
    run_dir, capsys, core_alone, storage, said
) -> None:
    status(run_dir(storage=storage))

    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert said in "".join(notes)
    assert ("python -m pip install trinity-ledger" in "".join(notes)) is bool(said)


def test_a_run_that_stopped_early_needs_no_more_of_the_disk(run_dir, capsys) -> None:
    status(run_dir(total_steps=10, status="finished"))

    (told,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("disk: ")]
    assert "steps left" not in told


def test_what_a_run_takes_of_the_disk_and_will_need_is_told(run_dir, capsys, monkeypatch) -> None:
    directory = run_dir(total_steps=10)
    (directory / "global_step_2").mkdir()
    (directory / "global_step_2" / "model").write_bytes(bytes(3_000_000))
    (directory / "buffer").mkdir()
    (directory / "buffer" / "explorer_output.jsonl").write_bytes(bytes(300_000))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5_000_000))

    status(directory)

    told = capsys.readouterr().out.splitlines()
    assert told[-3].startswith("disk: 3.3 MB (checkpoints 3.0 MB, buffer 300 kB, records ")
    assert told[-3].endswith("; about 7.7 MB more for the 7 steps left; 5.0 MB free")
    assert told[-2].startswith("note: the disk will be full after about 4 steps. Free space, ")
