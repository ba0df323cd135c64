"""A checkpoint is complete or absent."""

from __future__ import annotations

import pytest
from trinity.common.experience import Experience
from trinity.errors import CheckpointError, ConfigError
from trinity.runtime.checkpoint import CheckpointStore
from trinity.runtime.rundir import RunDir


def write_model(folder) -> None:
    (folder / "model").write_text("weights")


def save(store, step, **changes):
    values = {"state": {"n": step}, "experiences": [], "write_actor": write_model} | changes
    return store.save(step, **values)


def test_a_saved_checkpoint_comes_back_whole(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    waiting = Experience(tokens=[1, 2, 3], prompt_length=1, reward=0.5)

    save(store, 3, experiences=[waiting])

    latest = store.latest()
    assert latest.step == 3
    assert latest.read_state() == {"n": 3}
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
    save(store, 3, state={"n": "newer"})

    assert store.latest().read_state() == {"n": "newer"}
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_the_state_of_a_checkpoint_can_be_told_anew(tmp_path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 3)

    store.restate(3, state={"n": "later"})

    assert store.latest().read_state() == {"n": "later"}
    assert (store.latest().actor / "model").read_text() == "weights"


def test_what_a_kill_left_half_written_is_swept_away(tmp_path) -> None:
    (tmp_path / ".global_step_7.4711").mkdir()

    save(CheckpointStore(tmp_path), 8)

    assert not (tmp_path / ".global_step_7.4711").exists()
