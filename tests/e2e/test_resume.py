"""A run that was interrupted trains what an unbroken one does, each experience once."""

from __future__ import annotations

import pytest
import trinity
from trinity.common.config import load_config
from trinity.errors import CheckpointError, TrinityError
from trinity.runtime.loop import Interrupted, Loop
from trinity.runtime.record.result import RunStatus
from trinity.runtime.record.sample_files import places_of, read_step
from trinity.trainer.torch_trainer import TorchTrainer
from trinity_testing.history import read_history

pytestmark = pytest.mark.slow


@pytest.fixture
def run(write_yaml):
    return lambda config: trinity.run(load_config(write_yaml(config)), local=True)


@pytest.fixture
def trained(monkeypatch):
    """Note the eids of each optimizer step, and what it did to the weights."""
    steps, train_step = [], TorchTrainer.train_step

    def noting(self, experiences, *, step):
        metrics = train_step(self, experiences, step=step)
        steps.append((step, [e.eid for e in experiences], round(metrics["actor/loss"], 5)))
        return metrics

    monkeypatch.setattr(TorchTrainer, "train_step", noting)
    return steps


@pytest.fixture
def stop_at(monkeypatch):
    """Interrupt at the n-th place where a run can be: each explore step, each optimizer step."""
    place = {"number": 0, "wanted": 0}

    def maybe(self):
        place["number"] += 1
        if place["number"] == place["wanted"]:
            self._save()
            raise Interrupted

    monkeypatch.setattr(Loop, "_stop_if_asked", maybe)

    def set_place(number):
        place.update(number=0, wanted=number)

    return set_place


@pytest.mark.parametrize(
    ("sync_interval", "sync_offset", "place"),
    [
        (2, 1, 4),
        pytest.param(1, 0, 3, marks=pytest.mark.acceptance),
        pytest.param(2, 0, 4, marks=pytest.mark.acceptance),
        pytest.param(1, 2, 5, marks=pytest.mark.acceptance),
    ],
)
def test_an_interrupted_run_trains_each_experience_once(
    sync_interval, sync_offset, place, config_dict, run, trained, stop_at
) -> None:
    config_dict["synchronizer"] = {"sync_interval": sync_interval, "sync_offset": sync_offset}
    config_dict["buffer"] |= {"batch_size": 2, "train_batch_size": 6}
    config_dict["trainer"] = {"save_interval": 1}
    run(config_dict | {"name": "whole"})
    whole = trained.copy()
    trained.clear()

    stop_at(place)
    stopped = run(config_dict | {"name": "parts"})
    went_on = run(config_dict | {"name": "parts"})

    assert (stopped.status, went_on.status) == (RunStatus.INTERRUPTED, RunStatus.FINISHED)
    assert trained == whole
    eids = [eid for _, batch, _ in whole for eid in batch]
    assert len(eids) == len(set(eids)) == 32
    assert sampled_in(went_on.directory) == read_history(went_on.directory)


@pytest.mark.acceptance
def test_a_larger_batch_is_refused_with_the_length_that_explores_the_rest(config_dict, run) -> None:
    config_dict["buffer"] |= {"batch_size": 1}
    run(config_dict | {"trainer": {"total_steps": 3}})
    config_dict["buffer"] |= {"batch_size": 4}
    told = r"at step 2, 3 steps are made, and 5 tasks are left.* buffer\.total_steps to 5"
    with pytest.raises(CheckpointError, match=told):
        run(config_dict)
    config_dict["buffer"] |= {"total_steps": 3 + 2}

    went_on = run(config_dict)

    assert (went_on.status, went_on.stages[0].explore_steps) == (RunStatus.FINISHED, 5)


def sampled_in(directory):
    """Return the ids of the samples of each step, as they are kept for people."""
    places = places_of(directory)
    assert [place.head.step for place in places] == list(range(1, len(places) + 1))
    return [[sample.eid for sample in read_step(place)] for place in places]


@pytest.fixture
def file_buffer(config_dict, tmp_path):
    path = tmp_path / "experiences.jsonl"
    section = {"name": "stored", "storage_type": "file", "path": str(path)}
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": section}
    return path


@pytest.mark.acceptance
def test_a_file_between_explorer_and_trainer_is_read_on_after_an_interrupt(
    config_dict, run, file_buffer, trained, stop_at
) -> None:
    config_dict["trainer"] = {"save_interval": 1}
    stop_at(3)

    assert run(config_dict).status is RunStatus.INTERRUPTED
    assert run(config_dict).status is RunStatus.FINISHED

    eids = [eid for _, batch, _ in trained for eid in batch]
    assert len(eids) == len(set(eids)) == 32


@pytest.mark.acceptance
def test_a_raised_limit_of_train_steps_goes_on_with_what_was_explored(
    config_dict, run, trained
) -> None:
    config_dict["synchronizer"] = {"sync_interval": 2}
    for limit in (1, 2):
        result = run(config_dict | {"trainer": {"total_steps": limit}})

    assert (result.stages[0].explore_steps, result.stages[0].train_steps) == (2, 2)
    assert [step for step, *_ in trained] == [1, 2]


def test_a_checkpoint_of_another_mode_is_refused(
    config_dict, run, file_buffer, golden, tmp_path
) -> None:
    run(config_dict)

    with pytest.raises(CheckpointError) as caught:
        run(config_dict | {"mode": "train"})

    golden(str(caught.value), "checkpoint_of_another_mode", TMP=tmp_path)


def test_a_run_leaves_no_thread_behind(config_dict, run) -> None:
    import threading

    before = set(threading.enumerate())
    run(config_dict)

    assert set(threading.enumerate()) <= before


def test_a_step_that_failed_after_it_wrote_is_explored_again_and_trained_once(
    config_dict, run, trained, monkeypatch
) -> None:
    from trinity.buffer.task_source import TaskSource

    feedback, calls = TaskSource.feedback, []

    def fails_once(self, told):
        calls.append(told)
        if len(calls) == 2:
            raise ValueError("a selector of a plugin broke")
        return feedback(self, told)

    config_dict["buffer"]["total_steps"] = 3
    config_dict["trainer"] = {"save_interval": 10}  # nothing is saved before the failure
    monkeypatch.setattr(TaskSource, "feedback", fails_once)
    with pytest.raises(TrinityError, match="explore step 2 failed"):
        run(config_dict)

    assert run(config_dict).status is RunStatus.FINISHED

    eids = [eid for _, batch, _ in trained for eid in batch]
    assert [step for step, _, _ in trained] == [1, 2, 3]
    assert len(eids) == len(set(eids)) == 48
