"""What a run appends to is cut back to where its checkpoint stands."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.errors import CheckpointError
from trinity.monitor.tensorboard import TensorboardMonitor
from trinity.runtime.record.rewind import GrowingFiles
from trinity.runtime.record.rundir import RunDir
from trinity.runtime.record.samples import TrainedHistory
from trinity_testing.history import read_history


def of(*eids):
    return [SimpleNamespace(eid=SimpleNamespace(uid=eid)) for eid in eids]


@pytest.fixture
def rundir(tmp_path):
    (tmp_path / "run" / "monitor").mkdir(parents=True)
    return RunDir(tmp_path / "run")


@pytest.fixture
def files(rundir, tmp_path):
    config = Config(mode="explore")
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(
        storage_type="file", path=str(tmp_path / "stored.jsonl")
    )
    return GrowingFiles(config, rundir=rundir)


def test_lines_after_the_place_are_cut_off_and_those_before_stay(files, rundir, tmp_path) -> None:
    metrics, stored = rundir.monitor / "metrics.jsonl", tmp_path / "stored.jsonl"
    history = TrainedHistory(rundir.path)
    history.trained(1, of("1/0/0/0", "1/0/1/0"))
    metrics.write_text('{"step": 1}\n')
    marks = files.marks()
    history.trained(2, of("2/0/0/0"))
    with metrics.open("a") as file:
        file.write('{"step": 2}\n{"ste')
    stored.write_text('{"reward": 1}\n')

    files.cut(marks)

    assert read_history(rundir.path) == [["1/0/0/0", "1/0/1/0"]]
    assert metrics.read_text() == '{"step": 1}\n'
    assert stored.read_text() == ""


def test_a_file_that_became_shorter_is_left_alone(files, rundir) -> None:
    metrics = rundir.monitor / "metrics.jsonl"
    metrics.write_text("{}\n")

    files.cut({"monitor/metrics.jsonl": 100})

    assert metrics.read_text() == "{}\n"


def test_the_lines_of_bench_are_kept(files, rundir) -> None:
    metrics = rundir.monitor / "metrics.jsonl"
    metrics.write_text('{"step": 1}\n{"step": 2}\n{"step": 1, "bench/rows/reward/mean@1": 1}\n')

    files.cut({"monitor/metrics.jsonl": 12})

    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert lines == [{"step": 1}, {"step": 1, "bench/rows/reward/mean@1": 1}]


def test_before_the_first_checkpoint_the_beginning_is_the_place(files, tmp_path) -> None:
    stored = tmp_path / "stored.jsonl"
    stored.write_text('{"of": "the user"}\n')
    files.cut_to_beginning()
    with stored.open("a") as file:
        file.write('{"of": "a first step that was killed"}\n')

    files.cut_to_beginning()

    assert stored.read_text() == '{"of": "the user"}\n'


def test_event_files_end_at_the_place_and_later_ones_are_removed(files, rundir) -> None:
    first = TensorboardMonitor(directory=rundir.monitor, role="trainer")
    first.log({"actor/loss": 1.0}, step=1)
    first.flush()
    marks = files.marks()
    first.log({"actor/loss": 2.0}, step=2)
    first.close()
    (event_file,) = (rundir.monitor / "tensorboard" / "trainer").iterdir()
    later = event_file.with_name("events.out.tfevents.later")
    later.write_bytes(b"events")

    files.cut(marks)

    assert not later.exists()
    mark = marks[f"monitor/tensorboard/trainer/{event_file.name}"]
    assert event_file.stat().st_size == mark["size"]


def test_a_full_disk_leaves_no_half_line_in_the_history(rundir, full_beyond) -> None:
    history = TrainedHistory(rundir.path)
    history.trained(1, of("1/0/0/0"))
    size = (rundir.path / "history.jsonl").stat().st_size
    with full_beyond(size + 10), pytest.raises(CheckpointError, match="File too large"):
        history.trained(2, of("2/0/0/0"))

    history.trained(2, of("2/0/0/0"))
    assert read_history(rundir.path) == [["1/0/0/0"], ["2/0/0/0"]]


def test_a_file_that_may_not_be_read_is_named_before_the_run_goes_on(
    files, tmp_path, monkeypatch
) -> None:
    stored = tmp_path / "stored.jsonl"
    stored.write_text("{}\n")
    marks = files.marks()

    def refused(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(type(stored), "open", refused)
    with pytest.raises(
        CheckpointError, match=r"stored\.jsonl .*cannot be read \(Permission denied"
    ):
        files.check(marks, say=print)
