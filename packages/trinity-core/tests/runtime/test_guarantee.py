"""What a run promises, by its style and its selector of tasks."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.config.taskset import DataSelectorConfig, TasksetConfig
from trinity.extend import get_manager
from trinity.runtime.guarantee import guarantee_of


@pytest.mark.parametrize(
    ("style", "selector", "level"),
    [
        ("fixed", "difficulty_based", "same numbers"),
        ("trainer_driven", "sequential", "same order"),
        ("trainer_driven", "difficulty_based", "same ledger"),
        ("explorer_driven", "difficulty_based", "same ledger"),
    ],
)
def test_tasks_that_follow_rewards_have_no_order_where_weights_follow_the_clock(
    style, selector, level
) -> None:
    config = Config(mode="both")
    config.synchronizer.sync_style = style
    config.algorithm.sample_strategy = config.algorithm.sample_strategy or "default"
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type="queue")
    chosen = DataSelectorConfig(selector_type=selector)
    config.buffer.explorer_input.taskset = TasksetConfig(data_selector=chosen)

    assert guarantee_of(config, get_manager()) == level
