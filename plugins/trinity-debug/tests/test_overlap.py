"""What a next run could gain from working at the same time, worked out by hand."""

from __future__ import annotations

import json

import pytest
from trinity.common.config import Config
from trinity.runtime.record.rundir import RunDir
from trinity_debug.plugin import trinity_config_notes
from trinity_debug.step_times import overlap_lines


@pytest.fixture
def config():
    """Eight tasks of four runs, on two engines with four slots each."""
    config = Config()
    config.buffer.batch_size, config.algorithm.repeat_times = 8, 4
    config.explorer.rollout_model.engine_num, config.explorer.runner_per_model = 2, 4
    return config


@pytest.fixture
def measured(tmp_path):
    """Return a function that writes five equal steps; gives the run's folder."""

    def write(*, mean_run_s=1.0, train_s=1.0, beside_s=None, step_s=6.0) -> RunDir:
        explorer = {
            "time/rollout_s": 5.0, "time/engine_s": 3.0, "time/workflow_s": 1.5,
            "rollout/time/run_execution/mean": mean_run_s,
        }  # fmt: skip
        if beside_s is not None:
            explorer["time/trained_beside_s"] = beside_s
        sides = {
            "explorer": explorer,
            "trainer": {"time/train_s": train_s},
            "synchronizer": {"time/sync_s": 0.02, "time/step_s": step_s},
        }
        rows = [
            json.dumps(row | {"step": step, "role": role})
            for step in range(1, 6)
            for role, row in sides.items()
        ]
        folder = RunDir(tmp_path / "run")
        folder.monitor.mkdir(parents=True)
        (folder.monitor / "metrics.jsonl").write_text("\n".join(rows) + "\n")
        return folder

    return write


def test_in_turns_the_shorter_side_is_what_can_be_saved_at_most(config, measured) -> None:
    lines = overlap_lines(config, measured())

    assert lines[0] == "last time a step took 6.0 s: explore 5.0 s, train 1.0 s, sync 20 ms"
    assert lines[1].startswith("training beside exploring saves at most 17% of that")  # 1 / 6


def test_what_was_saved_is_told_of_the_step_that_it_would_have_been(config, measured) -> None:
    lines = overlap_lines(config, measured(beside_s=0.5, step_s=5.5))

    assert lines[1] == "training beside exploring saved 8% of a step; at most 17% can be"  # of 6 s


def test_the_slowest_runs_cost_what_full_slots_would_not_have_taken(config, measured) -> None:
    lines = overlap_lines(config, measured(mean_run_s=0.25))  # 32 x 0.25 / 8 = 1 s of 4.5

    assert lines[2].startswith("waiting for the slowest runs cost 3.5 s of it")


def test_where_all_slots_were_busy_no_runs_are_called_slow(config, measured) -> None:
    assert len(overlap_lines(config, measured(mean_run_s=1.1))) == 2


@pytest.mark.parametrize("style", ["fully_async", "explorer_driven", "trainer_driven"])
def test_a_run_whose_sides_go_on_by_themselves_is_told_nothing(config, measured, style) -> None:
    config.synchronizer.sync_style = style

    assert overlap_lines(config, measured()) == []


def test_a_run_that_never_was_has_nothing_to_tell(config, tmp_path) -> None:
    assert overlap_lines(config, RunDir(tmp_path / "none")) == []


def test_damaged_metrics_are_a_line_and_no_failure(config, measured) -> None:
    folder = measured()
    path = folder.monitor / "metrics.jsonl"
    path.write_text("{damaged\n" + path.read_text())

    (line,) = overlap_lines(config, folder)

    assert line.startswith("the metrics of the last run cannot be read: ")
    assert "metrics.jsonl" in line


def test_config_check_tells_it_of_the_stage_that_ran(config, measured, tmp_path) -> None:
    folder = tmp_path / "root" / "rft" / "two"
    folder.parent.mkdir(parents=True)
    measured().path.rename(folder)
    config.checkpoint_root_dir, config.project = str(tmp_path / "root"), ""
    config.name = "rft/one"
    first = trinity_config_notes(config)
    config.name = "rft/two"

    assert first == []
    assert trinity_config_notes(config)[0].startswith("last time a step took 6.0 s")
