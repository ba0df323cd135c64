"""A part of a plugin that fails does not take the run with it."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import pytest
from trinity.common.config import Config
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import RunFailedError, TrinityError
from trinity.monitor.jsonl import JsonlMonitor, read_metrics
from trinity.runtime.observers import record
from trinity.runtime.parts import Parts
from trinity.runtime.record.checkpoint import read_weights, write_weights
from trinity.runtime.record.monitors import Monitors
from trinity.runtime.record.progress import Progress
from trinity.runtime.record.records import explained_when_full
from trinity.runtime.record.rundir import RunDir
from trinity.runtime.restore import load_engines
from trinity.runtime.rollouts import explorer_state


class Monitor:
    def __init__(self, *, breaks=False) -> None:
        self.steps, self.breaks, self.is_closed = [], breaks, False

    def log(self, metrics, *, step):
        if self.breaks:
            raise OSError("no network")
        self.steps.append(step)

    def close(self):
        self.is_closed = True
        if self.breaks:
            raise OSError("no network")


@pytest.fixture
def parts(tmp_path):
    nothing = SimpleNamespace()
    return Parts(
        config=Config(),
        rundir=RunDir(tmp_path),
        info=nothing,
        manager=SimpleNamespace(call=lambda *_, **__: []),
        display=nothing,
        interrupt=nothing,
    )


def test_a_monitor_that_fails_is_named_once_and_the_others_go_on(parts, caplog) -> None:
    broken, whole = Monitor(breaks=True), Monitor()
    parts.observers = [Monitors({"trainer": [broken, whole]})]

    for step in (1, 2, 3, 4):
        record(parts, "trainer", {"actor/loss": 1.0}, step=step)
    parts.close()

    assert whole.steps == [1, 2, 3, 4]
    assert [record.getMessage() for record in caplog.records] == [
        "the monitor Monitor failed at step 1 (trainer): OSError: no network. The run goes on and "
        "tries it again; metrics.jsonl has every number.",
        "the monitor Monitor failed 3 times in a row and gets no more trainer metrics",
        "the monitor Monitor lacks 3 records of this run; metrics.jsonl has them",
    ]


def test_a_monitor_that_is_well_again_gets_the_later_steps(parts, caplog) -> None:
    monitor = Monitor()
    parts.observers = [Monitors({"trainer": [monitor]})]

    for step in range(1, 8):
        monitor.breaks = step in {2, 3, 5, 6}  # never three times in a row
        record(parts, "trainer", {"actor/loss": 1.0}, step=step)

    assert monitor.steps == [1, 4, 7]
    assert len(caplog.records) == 1


def test_a_full_disk_is_no_monitors_failure(parts) -> None:
    full = Monitor()
    full.log = lambda metrics, *, step: os.write(os.open("/dev/full", os.O_WRONLY), b"x")
    parts.observers = [Monitors({"trainer": [full]})]

    with pytest.raises(OSError, match="No space left"):
        record(parts, "trainer", {"actor/loss": 1.0}, step=1)


def test_metrics_that_the_run_itself_cannot_keep_are_no_monitors_failure(parts, tmp_path) -> None:
    folder = tmp_path / "monitor"
    parts.observers = [Monitors({"trainer": [JsonlMonitor(directory=folder, role="trainer")]})]
    record(parts, "trainer", {"actor/loss": 1.0}, step=1)
    shutil.rmtree(folder)

    failure = f"^{folder / 'metrics.jsonl'} cannot be used: No such file or directory. It belongs "
    with pytest.raises(RunFailedError, match=failure), explained_when_full(tmp_path):
        record(parts, "trainer", {"actor/loss": 1.0}, step=2)


def test_what_is_no_number_ends_no_monitor(parts, tmp_path, caplog) -> None:
    parts.observers = [Monitors({"explorer": [JsonlMonitor(directory=tmp_path, role="explorer")]})]

    for step in (1, 2):
        metrics = {"experience_pipeline/selector": {"a": [1, 2], "b": {"c": 0.5}}, "x": "text"}
        record(parts, "explorer", metrics | {"rollout/reward": float("inf")}, step=step)

    assert read_metrics(tmp_path) == [
        {
            "step": step,
            "role": "explorer",
            "experience_pipeline/selector/b/c": 0.5,
            "rollout/reward": None,
        }
        for step in (1, 2)
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "the metric experience_pipeline/selector/a, which an experience operator gave, is no "
        "number and is left out here and later: [1, 2]. Return numbers, or dicts of numbers, as "
        "metrics.",
        "the metric x, which a part of the explorer gave, is no number and is left out here and "
        "later: 'text'. Return numbers, or dicts of numbers, as metrics.",
    ]


def test_a_room_that_does_not_close_is_named_and_the_others_are_closed(parts, caplog) -> None:
    broken, whole = Monitor(breaks=True), Monitor()
    parts.observers = [Monitors({"trainer": [broken, whole]})]

    parts.close()

    assert broken.is_closed
    assert whole.is_closed
    assert [one.getMessage() for one in caplog.records] == [
        "Monitor did not close: OSError: no network"
    ]


class Engines:
    """What stands in for a sync method and for the process that has the engines' weights."""

    def __init__(self) -> None:
        self.loaded = []

    def sync(self, snapshot):
        self.loaded.append(snapshot().version)
        return snapshot().version


@pytest.fixture
def behind(parts, tmp_path):
    """Return parts that take turns, and a checkpoint of step 5 whose engines have version 4."""
    torch = pytest.importorskip("torch")
    weights = WeightSnapshot(version=WeightVersion(4), tensors={"w": torch.arange(3.0)})
    write_weights(weights, tmp_path)
    parts.sync = Engines()
    parts.trainer = SimpleNamespace(save=lambda folder: None)
    return parts


def test_a_run_in_turns_that_goes_on_from_beside_a_step_keeps_the_engines_weights(
    behind, tmp_path
) -> None:
    load_engines(behind, tmp_path, version=4)
    again = tmp_path / "again" / "actor"
    again.mkdir(parents=True)

    behind.writer._write_weights(Progress(train_steps=5, weights_version=4), again)

    assert behind.sync.loaded == [4]
    assert read_weights(again.parent, version=4).tensors["w"].tolist() == [0.0, 1.0, 2.0]


def test_once_the_engines_have_the_trainers_weights_no_older_ones_are_kept(
    behind, tmp_path
) -> None:
    load_engines(behind, tmp_path, version=4)
    (tmp_path / "again").mkdir()

    for progress in (
        Progress(train_steps=6, weights_version=6),
        Progress(train_steps=7, weights_version=6),
    ):
        behind.writer._write_weights(progress, tmp_path / "again" / "actor")

    assert list((tmp_path / "again").iterdir()) == []


def test_the_models_own_weights_are_not_copied(behind, tmp_path) -> None:
    load_engines(behind, tmp_path, version=0)
    (tmp_path / "again").mkdir()

    behind.writer._write_weights(
        Progress(train_steps=2, weights_version=0), tmp_path / "again" / "actor"
    )

    assert behind.sync.loaded == []
    assert behind.writer._engines_are_behind(Progress(train_steps=2, weights_version=0))
    assert list((tmp_path / "again").iterdir()) == []


def test_a_run_does_not_go_on_beside_a_step_that_it_broke_off(parts) -> None:
    parts.check_quiet()  # nobody writes
    asked = []
    parts.writing = SimpleNamespace(is_over=lambda *, timeout_s: asked.append(timeout_s))

    with pytest.raises(TrinityError, match=r"an experience operator takes that long\. Run"):
        parts.check_quiet()
    assert asked == [60.0]


def test_a_run_that_ends_waits_for_a_step_that_it_broke_off_and_says_so(parts, caplog) -> None:
    """An error of the trainer is told, and who starts the run again must not meet that step."""
    waits = []
    parts.writing = SimpleNamespace(is_over=lambda *, timeout_s: waits.append(timeout_s))

    parts.leave_quiet(waits=True)
    parts.leave_quiet(waits=False)  # stopped at once

    assert waits == [60.0, 0.0]
    assert "an explore step that was broken off is not, 60 s later" in caplog.text


def test_where_the_explorer_stands_is_a_copy_of_what_a_selector_goes_on_changing(parts) -> None:
    seen = [1]
    parts.explorer = SimpleNamespace(state_dict=lambda: {"files": {}, "seen": seen})

    state = explorer_state(parts)
    seen.append(2)

    assert state["seen"] == [1]
