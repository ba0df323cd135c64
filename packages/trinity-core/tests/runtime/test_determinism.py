"""What a run promises of its numbers, and whether it may overlap."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.config.buffer import DataSelectorConfig, TasksetConfig
from trinity.extend import get_manager
from trinity.runtime.determinism import determinism_of, may_overlap


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
    config = a_config(sync_style=style)
    chosen = DataSelectorConfig(selector_type=selector)
    config.buffer.explorer_input.taskset = TasksetConfig(data_selector=chosen)

    assert determinism_of(config, get_manager()) == level


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, "same numbers"),
        ({"sync_style": "fixed", "sync_offset": 2}, "same numbers"),
        ({"sync_style": "fully_async"}, "same order"),
        ({"sync_style": "fully_async", "window": 0.5}, "same ledger"),  # a group may overtake
        ({"sync_style": "fixed", "mode": "explore"}, "same ledger"),
        ({"sync_style": "fixed", "replays": True}, "same ledger"),
    ],
)
def test_what_two_runs_of_a_seed_have_in_common(settings, level) -> None:
    assert determinism_of(a_config(**settings), get_manager()) == level


@pytest.mark.parametrize(
    ("engine", "level"),
    [
        ("transformers", "same numbers"),
        ("trinity.engines.transformers_engine:TransformersEngine", "same numbers"),
        ("trinity_testing.engines:ScriptedEngine", "same order"),
    ],
)
def test_numbers_follow_from_the_seed_only_if_the_engine_has_a_lockstep_mode(engine, level) -> None:
    assert determinism_of(a_config(engine=engine), get_manager()) == level


def test_without_lockstep_mode_tasks_that_follow_rewards_have_no_order_either() -> None:
    config = a_config(engine="trinity_testing.engines:ScriptedEngine")
    chosen = DataSelectorConfig(selector_type="difficulty_based")
    config.buffer.explorer_input.taskset = TasksetConfig(data_selector=chosen)

    assert determinism_of(config, get_manager()) == "same ledger"


@pytest.mark.parametrize(
    ("settings", "overlaps"),
    [
        ({"sync_style": "fixed"}, False),  # the next step waits for the sync
        ({"sync_style": "fixed", "sync_offset": 1}, True),
        ({"sync_style": "fixed", "sync_interval": 2}, True),
        ({"sync_style": "explorer_driven"}, True),
        ({"sync_style": "trainer_driven"}, True),
        ({"sync_style": "explorer_driven", "mode": "explore"}, False),
        ({"sync_style": "explorer_driven", "replays": True}, False),  # it gives out what is there
        ({"sync_style": "fixed", "sync_offset": 1, "replays": True}, False),
    ],
)
def test_rollouts_begin_beside_train_steps_where_nothing_depends_on_the_moment(
    settings, overlaps
) -> None:
    assert may_overlap(a_config(**settings), get_manager()) is overlaps


def a_config(*, mode="both", window=0.0, replays=False, engine="transformers", **sync):
    config = Config(mode=mode)
    config.explorer.rollout_model.engine_type = engine
    for name, value in sync.items():
        setattr(config.synchronizer, name, value)
    config.buffer.batch_size, config.explorer.window = 4, window
    config.algorithm.sample_strategy = "default"
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(
        storage_type="queue", replay_buffer={"enable": replays}
    )
    return config
