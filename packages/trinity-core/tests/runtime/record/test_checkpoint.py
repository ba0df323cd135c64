"""A checkpoint is complete or absent."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict

import pytest
from trinity.common.experience import Experience
from trinity.errors import CheckpointError, ConfigError, WorkerLostError
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.progress import Progress
from trinity.runtime.record.rundir import RunDir


def write_model(folder) -> None:
    (folder / "model").write_text("weights")


def a_state(step, **changes):
    values = {"explorer": {}, "strategy": {}, "storage": {}, "files": {}, "plugins": []}
    progress = asdict(Progress(train_steps=step))
    return {"mode": "both", "progress": progress, "digest": "ab", **values, **changes}


def save(store, step, **changes):
    values = {"state": a_state(step), "experiences": [], "write_actor": write_model} | changes
    return store.save(step, **values)


def test_a_saved_checkpoint_comes_back_whole(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    waiting = Experience(tokens=[1, 2, 3], prompt_length=1, reward=0.5)

    save(store, 3, experiences=[waiting])

    latest = store.latest()
    assert latest.step == 3
    assert latest.read_state() == a_state(3)
    assert (latest.actor / "model").read_text() == "weights"
    assert [row.reward for row in latest.read_experiences()] == [0.5]


def test_a_checkpoint_that_breaks_off_leaves_the_one_before_it(tmp_path, golden) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)

    def disk_is_full(folder) -> None:
        (folder / "model").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError) as caught:
        save(store, 2, write_actor=disk_is_full)

    golden(str(caught.value), "checkpoint_disk_full", TMP=tmp_path)
    assert [checkpoint.step for checkpoint in store.all()] == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "global_step_1",
        "latest_checkpointed_iteration.txt",
    ]


def test_a_folder_without_its_state_is_no_checkpoint(tmp_path) -> None:
    (tmp_path / "global_step_7").mkdir()

    assert CheckpointStore(tmp_path).latest() is None


def test_steps_are_ordered_as_numbers(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    for step in (10, 9, 100):
        save(store, step)

    assert [checkpoint.step for checkpoint in store.all()] == [9, 10, 100]


def test_half_of_a_replaced_checkpoint_is_not_taken_for_one(tmp_path, monkeypatch) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)
    remove = shutil.rmtree

    def is_killed_half_way(path, **options) -> None:
        if (path / "state.json").exists():
            (path / "actor" / "model").unlink()
            raise KeyboardInterrupt
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", is_killed_half_way)
    with pytest.raises(KeyboardInterrupt):
        save(store, 1, state=a_state(1))
    monkeypatch.undo()
    remove(tmp_path / "global_step_1")  # as a user may, to go on from the one before it

    store.recover()

    assert store.latest() is None


def test_what_a_kill_left_is_removed_and_in_nobodys_way(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)
    left = tmp_path / f".global_step_1.{os.getpid()}.old"  # of a process with the same number
    (left / "actor").mkdir(parents=True)

    store.recover()
    save(store, 1, state=a_state(1, digest="2"))

    assert store.latest().read_state()["digest"] == "2"
    assert not left.exists()


def test_only_the_newest_checkpoints_are_kept(tmp_path) -> None:
    store = CheckpointStore(tmp_path, num_kept=2)
    for step in (1, 2, 3):
        save(store, step)

    assert [checkpoint.step for checkpoint in store.all()] == [2, 3]


def test_a_run_directory_that_cannot_be_made_is_refused(tmp_path, golden) -> None:
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(ConfigError) as caught:
        RunDir(tmp_path / "file" / "run").create()

    golden(str(caught.value), "run_directory_unwritable", TMP=tmp_path)


def test_a_checkpoint_of_the_same_step_replaces_the_older_one(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 3)
    save(store, 3, state=a_state(3, digest="newer"))

    assert store.latest().read_state()["digest"] == "newer"
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_the_state_of_a_checkpoint_can_be_told_anew(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 3)

    store.restate(3, state=a_state(3, digest="later"))

    assert store.latest().read_state()["digest"] == "later"
    assert store.latest().check()
    assert (store.latest().actor / "model").read_text() == "weights"


def test_a_checkpoint_that_a_better_one_displaced_goes_when_the_state_says_so(tmp_path) -> None:
    for step in (1, 2):
        save(CheckpointStore(tmp_path, num_kept=1, best=[1]), step)

    CheckpointStore(tmp_path, num_kept=1, best=[2]).restate(2, state=a_state(2))

    assert [checkpoint.step for checkpoint in CheckpointStore(tmp_path).all()] == [2]


def test_what_a_kill_left_half_written_is_swept_away(tmp_path) -> None:
    (tmp_path / ".global_step_7.4711").mkdir()

    save(CheckpointStore(tmp_path), 8)

    assert not (tmp_path / ".global_step_7.4711").exists()


def test_a_checkpoint_that_was_complete_when_a_kill_came_is_put_in_place(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    saved = save(store, 4)
    saved.path.rename(tmp_path / ".global_step_4.123")
    (tmp_path / ".global_step_5.123" / "actor").mkdir(parents=True)  # broken off: no state

    store.recover()

    assert [checkpoint.step for checkpoint in store.all()] == [4]
    assert store.latest().read_state() == a_state(4)


def test_of_two_checkpoints_of_one_step_the_newer_is_put_in_place(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 4, state=a_state(4, digest="old")).path.rename(tmp_path / ".global_step_4.123.old")
    save(store, 4, state=a_state(4, digest="new")).path.rename(tmp_path / ".global_step_4.123")

    store.recover()

    assert store.latest().read_state()["digest"] == "new"
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "4\n"


def test_waiting_experiences_that_cannot_be_read_are_told_with_the_folder(tmp_path) -> None:
    saved = save(CheckpointStore(tmp_path), 4)
    (saved.path / "experiences.jsonl").write_text('{"half')

    with pytest.raises(CheckpointError, match=r"experiences\.jsonl is damaged"):
        saved.read_experiences()


def test_a_lost_trainer_is_told_as_itself(tmp_path) -> None:
    def trainer_dies(folder) -> None:
        raise WorkerLostError("trainer", cause="killed")

    with pytest.raises(WorkerLostError):
        save(CheckpointStore(tmp_path), 4, write_actor=trainer_dies)

    assert list(tmp_path.iterdir()) == []
