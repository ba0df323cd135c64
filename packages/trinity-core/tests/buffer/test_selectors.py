"""Orders that look at the rows, or at how they went."""

from __future__ import annotations

import json

import pytest
from trinity.buffer.selectors import EasyToHardSelector, RandomSelector
from trinity.buffer.task_source import TaskSource
from trinity.common.config import Config, DataSelectorConfig, TasksetConfig
from trinity.errors import DataError
from trinity_algorithms.difficulty import DifficultyBasedSelector

RATES = {"weak": [0.1, 0.4, 0.2], "strong": [0.5, 0.8, 0.9]}


def test_a_batch_of_any_rows_holds_none_twice_and_is_drawn_again_after_a_restart():
    first, again = RandomSelector(5, seed=3), RandomSelector(5, seed=3)
    first.get_indices(5)
    again.load_state_dict(first.state_dict())

    assert sorted(RandomSelector(5).get_indices(5)) == [0, 1, 2, 3, 4]
    assert first.get_indices(3) == again.get_indices(3)


def test_more_different_rows_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match="draws 6 different rows, but there are 5"):
        RandomSelector(5).get_indices(6)


def test_of_equally_easy_rows_the_later_comes_first():
    selector = EasyToHardSelector(3, features={"rate": [0.5, 0.9, 0.5]})

    assert selector.get_indices(4) == [1, 2, 0, 1]


def test_rows_are_chosen_by_what_was_learned_and_a_restart_knows_it():
    selector = DifficultyBasedSelector(3, features=RATES, target_reward=0.5, rho=0.0)
    selector.feedback([0, 2], [1.0, 0.5])  # row 2 is what one wants, row 0 far too easy

    restored = DifficultyBasedSelector(3, features=RATES, target_reward=0.5, rho=0.0)
    restored.load_state_dict(json.loads(json.dumps(selector.state_dict())))

    assert selector.get_indices(3) == restored.get_indices(3) == [1, 2, 0]


def test_draws_by_temperature_hold_no_row_twice():
    selector = DifficultyBasedSelector(3, features=RATES, tau=0.5, do_sample=True)

    assert all(sorted(selector.get_indices(3)) == [0, 1, 2] for _ in range(20))


def test_two_columns_are_needed():
    with pytest.raises(ValueError, match=r"needs two feature_keys, got \['weak'\]"):
        DifficultyBasedSelector(3, features={"weak": [0.1, 0.2, 0.3]})


def a_source(tmp_path, rows, **selector):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": "p"} | row) + "\n" for row in rows))
    config = Config()
    config.algorithm.repeat_times = 1
    chosen = DataSelectorConfig(**selector)
    section = TasksetConfig(name="rows", path=str(path), data_selector=chosen)
    config.buffer.explorer_input.tasksets = [section]
    return TaskSource(config)


def test_a_run_reads_the_features_from_the_dataset(tmp_path):
    source = a_source(
        tmp_path,
        [{"rate": 0.1}, {"rate": 0.9}, {"rate": 0.5}],
        selector_type="offline_easy2hard",
        feature_keys=["rate"],
    )

    assert [task.raw_task["rate"] for task in source.read(3)] == [0.9, 0.5, 0.1]


def test_a_batch_of_a_run_holds_no_row_twice(tmp_path):
    rows = [{"rate": number} for number in range(4)]
    source = a_source(tmp_path, rows, selector_type="random")

    assert sorted(task.raw_task["rate"] for task in source.read(4)) == [0, 1, 2, 3]


def test_a_row_without_the_feature_is_named(tmp_path):
    with pytest.raises(
        DataError, match=r"row 2 has no number in column 'rate', which feature_keys"
    ):
        a_source(
            tmp_path,
            [{"rate": 0.1}, {}],
            selector_type="offline_easy2hard",
            feature_keys=["rate"],
        )


def test_a_selector_without_its_columns_is_named(tmp_path):
    with pytest.raises(DataError, match="rows: task selector offline_easy2hard needs feature_keys"):
        a_source(tmp_path, [{}], selector_type="offline_easy2hard")
