"""The order of the tasks of a run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from trinity.buffer.selectors import SequentialSelector, ShuffleSelector
from trinity.buffer.task_source import TaskSource, build_evaluation_sets
from trinity.common.config import Config, DataSelectorConfig, TasksetConfig
from trinity.common.ports import RowValues
from trinity.errors import CheckpointError, DataError


def a_set(tmp_path, name, num_rows, *, selector="sequential", seed=None, **fields) -> TasksetConfig:
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{name}{i}"}) + "\n" for i in range(num_rows)))
    chosen = DataSelectorConfig(selector_type=selector, seed=seed)
    return TasksetConfig(name=name, path=str(path), data_selector=chosen, **fields)


def a_config(
    *sections, batch_size=2, epochs=1, steps=None, train_steps=None, repeat_times=1, seed=42
) -> Config:
    config = Config(seed=seed)
    config.algorithm.repeat_times = repeat_times
    config.buffer.batch_size = batch_size
    config.trainer.total_steps = train_steps
    config.buffer.total_epochs = epochs
    config.buffer.total_steps = steps
    config.buffer.explorer_input.tasksets = list(sections)
    return config


def prompts(tasks):
    return [task.raw_task["prompt"] for task in tasks]


def read_all(source, count=2):
    taken = []
    while True:
        try:
            taken.append(prompts(source.read(count)))
        except StopIteration:
            return taken


def test_rows_come_in_order_epoch_after_epoch_and_the_last_batch_may_be_short(tmp_path):
    source = TaskSource(a_config(a_set(tmp_path, "a", 3), epochs=3))

    batches = read_all(source)

    # 3 rows x 3 epochs = 9 tasks = four batches of 2 and one of 1
    assert source.num_steps == 5
    assert batches == [["a0", "a1"], ["a2", "a0"], ["a1", "a2"], ["a0", "a1"], ["a2"]]


def test_total_steps_wins_over_epochs(tmp_path):
    source = TaskSource(a_config(a_set(tmp_path, "a", 3), steps=7))

    assert source.num_steps == 7
    assert len([source.read(2) for _ in range(7)]) == 7


def test_a_single_taskset_and_its_list_form_are_the_same_set(tmp_path):
    section = a_set(tmp_path, "a", 2)
    config = a_config(section)
    config.buffer.explorer_input.taskset = section

    assert len(TaskSource(config)) == 2


def test_tasks_are_repeated_as_the_algorithm_says(tmp_path):
    source = TaskSource(a_config(a_set(tmp_path, "a", 1, repeat_times=9), repeat_times=4))

    assert source.read(1)[0].repeat_times == 4


def test_shuffle_is_numpys_permutation_of_seed_and_epoch(tmp_path):
    source = TaskSource(a_config(a_set(tmp_path, "a", 5, selector="shuffle", seed=7), epochs=2))

    first, second = prompts(source.read(5)), prompts(source.read(5))

    assert first == [f"a{i}" for i in np.random.default_rng(7).permutation(5)]
    assert second == [f"a{i}" for i in np.random.default_rng(8).permutation(5)]


def test_a_selector_without_a_seed_follows_the_runs(tmp_path):
    section = a_set(tmp_path, "a", 6, selector="shuffle")

    orders = [prompts(TaskSource(a_config(section, seed=seed)).read(6)) for seed in (1, 1, 2)]

    assert orders[0] == orders[1] != orders[2]


def test_several_sets_are_mixed_each_row_once_an_epoch(tmp_path):
    config = a_config(a_set(tmp_path, "a", 5), a_set(tmp_path, "b", 7), epochs=2)

    taken = [prompts(TaskSource(config).read(24)) for _ in range(2)]

    assert taken[0] == taken[1]
    for epoch in (taken[0][:12], taken[0][12:]):
        assert sorted(epoch) == sorted([f"a{i}" for i in range(5)] + [f"b{i}" for i in range(7)])
        assert [p for p in epoch if p.startswith("a")] == [f"a{i}" for i in range(5)]
    assert taken[0][:12] != taken[0][12:]


def test_a_task_names_its_set(tmp_path):
    source = TaskSource(a_config(a_set(tmp_path, "a", 1), a_set(tmp_path, "b", 1)))

    by_prompt = {t.raw_task["prompt"]: t.index["taskset_id"] for t in source.read(2)}

    assert by_prompt == {"a0": 0, "b0": 1}


@pytest.mark.parametrize("selector", ["sequential", "shuffle"])
def test_a_source_goes_on_from_its_state(tmp_path, selector):
    config = a_config(
        a_set(tmp_path, "a", 5, selector=selector),
        a_set(tmp_path, "b", 7, selector=selector),
        epochs=3,
    )
    source = TaskSource(config)
    source.read(13)
    state = json.loads(json.dumps(source.state_dict()))
    rest = read_all(source, 4)

    again = TaskSource(config)
    again.load_state_dict(state)

    assert read_all(again, 4) == rest


def test_evaluation_sets_have_repeats_of_their_own(tmp_path):
    config = a_config(a_set(tmp_path, "a", 1), repeat_times=8)
    config.buffer.explorer_input.eval_tasksets = [a_set(tmp_path, "e", 3, repeat_times=2)]

    (evaluation,) = build_evaluation_sets(config)

    assert (evaluation.name, evaluation.repeat_times, len(evaluation.tasks())) == ("e", 2, 3)
    assert all(task.is_eval and task.repeat_times == 2 for task in evaluation.tasks())


def test_selectors_wrap_around():
    assert SequentialSelector(3).get_indices(7) == [0, 1, 2, 0, 1, 2, 0]
    assert sorted(ShuffleSelector(3, seed=1).get_indices(6)) == [0, 0, 1, 1, 2, 2]


def test_a_larger_batch_that_would_leave_tasks_out_is_refused_when_a_run_goes_on(tmp_path):
    section = a_set(tmp_path, "a", 16)
    before = TaskSource(a_config(section, batch_size=1))
    for _ in range(6):
        before.read(1)
    state = json.loads(json.dumps(before.state_dict()))

    told = (
        r"buffer\.batch_size 1, .* is 4: .* at step 4, 6 steps are made, and 10 .*total_steps to 9"
    )
    with pytest.raises(CheckpointError, match=told):
        TaskSource(a_config(section, batch_size=4)).load_state_dict(state)


def test_another_batch_that_leaves_no_task_out_goes_on(tmp_path):
    section = a_set(tmp_path, "a", 16)
    before = TaskSource(a_config(section, batch_size=4))
    before.read(4)
    early = before.state_dict()
    before.read(12)
    of_an_older_version = {k: v for k, v in early.items() if k != "batch_size"}

    for state, now in (
        (early, {"batch_size": 2}),
        (early, {"batch_size": 6}),  # one step of 4 and two of 6: as many as three of 6
        (early, {"batch_size": 16, "train_steps": 2}),  # which end the run before its tasks
        (early, {"batch_size": 8, "steps": 5}),
        (before.state_dict(), {"batch_size": 8}),
        (of_an_older_version, {"batch_size": 8}),
    ):
        source = TaskSource(a_config(section, **now))
        source.load_state_dict(state)
        assert source.state_dict()["position"] == state["position"]


class Remembers(SequentialSelector):
    def __init__(self, num_rows, *, seed=42):
        super().__init__(num_rows, seed=seed)
        self.told = []

    def feedback(self, indices, values):
        self.told.append((indices, values))


def test_how_tasks_went_reaches_the_selector_of_their_taskset(tmp_path):
    name = f"{__name__}:Remembers"
    sections = [a_set(tmp_path, which, 3, selector=name) for which in "ab"]
    source = TaskSource(a_config(*sections))

    source.feedback(
        {"1": RowValues(indices=[2], values=[0.25]), "7": RowValues(indices=[], values=[])}
    )

    assert [selector.told for selector in source._selectors] == [[], [([2], [0.25])]]


def test_a_selector_learns_from_pass_rates_and_its_state_goes_on(tmp_path):
    section = a_set(tmp_path, "a", 3, selector="difficulty_based")
    path = tmp_path / "a.jsonl"
    rows = [{"prompt": f"a{i}", "weak": 0.5, "strong": 0.5} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    section.data_selector.feature_keys = ["weak", "strong"]
    first, second = TaskSource(a_config(section)), TaskSource(a_config(section))

    first.feedback({"0": RowValues(indices=[0, 2], values=[0.0, 1.0])})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))

    # the target is a pass rate of 1: row 2 was always solved, row 0 never, row 1 is unknown
    assert prompts(first.read(3)) == prompts(second.read(3)) == ["a2", "a1", "a0"]


class RunsOut(SequentialSelector):
    """Gives three rows."""

    def get_indices(self, count):
        return super().get_indices(count)[: max(0, 3 - self.position + count)]


class Ends(SequentialSelector):
    def get_indices(self, count):
        return [next(iter(()))]


def test_a_selector_that_gives_fewer_rows_than_it_is_asked_for_is_refused(tmp_path):
    source = TaskSource(a_config(a_set(tmp_path, "a", 9, selector=f"{__name__}:RunsOut")))
    source.read(2)

    with pytest.raises(DataError, match=r"RunsOut of the taskset a gave 1 rows, asked for 2"):
        source.read(2)


def test_a_selector_that_lets_a_stop_iteration_out_ends_nothing_silently(tmp_path):
    source = TaskSource(a_config(a_set(tmp_path, "a", 9, selector=f"{__name__}:Ends")))

    with pytest.raises(RuntimeError, match="StopIteration"):
        source.read(2)


def test_a_row_that_the_taskset_does_not_have_is_refused(tmp_path):
    section = a_set(tmp_path, "a", 3, selector=f"{__name__}:Remembers")

    with pytest.raises(DataError, match=r"row 3 of the taskset a went, which has 3 rows"):
        TaskSource(a_config(section)).feedback({"0": RowValues(indices=[3], values=[0.5])})
