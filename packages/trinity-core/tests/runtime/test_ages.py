"""The ages of what is trained are told, and one that cannot be is an error."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.errors import TrinityError
from trinity.runtime.ages import Ages
from trinity.runtime.lead import LeadOfExplorer, LeadOfTrainer


@pytest.fixture
def config():
    config = Config()
    config.buffer.batch_size = 8
    config.synchronizer.sync_style = "fully_async"
    config.explorer.max_inflight_batches, config.explorer.window = 3, 0.3
    return config


def of_versions(oldest, mean):
    return {"sample/model_version/min": float(oldest), "sample/model_version/mean": float(mean)}


def test_an_age_is_the_steps_done_less_the_version(config) -> None:
    ages = Ages(config)

    metrics = ages.of_step(7, of_versions(4, 5.5), train_s=0.1)

    assert (metrics["age/max"], metrics["age/mean"]) == (2.0, 0.5)


def test_a_group_older_than_the_bound_is_a_fault_that_is_told(config) -> None:
    ages = Ages(config)  # at most 3 steps: two batches ahead, and a window of 7 groups
    ages.of_step(7, of_versions(3, 3), train_s=0.1)

    with pytest.raises(TrinityError, match="none can be more than 3 old"):
        ages.of_step(8, of_versions(3, 3), train_s=0.1)


def test_groups_of_an_earlier_start_may_be_as_old_as_they_could_be_then(config) -> None:
    ages = Ages(config)  # at most 3 now, and 5 batches with a window of 1 then: at most 4
    before = {"batch_size": 8, "capacity": 40, "window": 1}
    groups = {"running": [], "waiting": [[n, 0] for n in range(18)], "taken": []}
    ages.go_on({**before, **groups}, trained=4)

    # 18 groups, and 6 that overtake the last: three steps, with capacity 40 and window 7
    assert ages.of_step(5, of_versions(0, 0), train_s=0.1)["age/max"] == 4.0
    ages.of_step(7, of_versions(2, 2), train_s=0.1)
    with pytest.raises(TrinityError, match="none can be more than 3 old"):
        ages.of_step(8, of_versions(3, 3), train_s=0.1)


def test_of_explore_steps_ahead_nothing_is_older_than_the_lead_lets_it_be(config) -> None:
    config.synchronizer.sync_style = "trainer_driven"
    ages = Ages(config, batch_size=4, lead=LeadOfTrainer(interval=1, most_open=1))
    ages.explored(8)  # two batches a step: at most 3 of the 4 in two steps lie before the last
    assert ages.of_step(4, of_versions(0, 0), train_s=0.1, num_rows=4)["age/max"] == 3.0

    with pytest.raises(TrinityError, match=r"none can be more than 3 old .*sync_interval"):
        ages.of_step(5, of_versions(0, 0), train_s=0.1, num_rows=4)


def test_what_a_strategy_that_somebody_brought_reads_may_be_of_any_age(config) -> None:
    config.synchronizer.sync_style = "trainer_driven"
    lead = LeadOfTrainer(interval=1, most_open=1)
    ages = Ages(config, batch_size=4, lead=lead, is_whole=False)  # it may have waited for more
    ages.explored(4)

    assert ages.of_step(9, of_versions(0, 0), train_s=0.1, num_rows=4)["age/max"] == 8.0


def test_explore_steps_of_an_earlier_start_may_have_had_another_lead(config) -> None:
    config.synchronizer.sync_style = "explorer_driven"
    ages = Ages(config, batch_size=4, lead=LeadOfExplorer(interval=1, most_open=0))
    ages.begin_with([4, 4])
    ages.explored(4)  # before the first sync
    ages.synced()
    ages.explored(4)
    for step in (5, 6, 7):
        ages.of_step(step, of_versions(0, 0), train_s=0.1, num_rows=4)

    with pytest.raises(TrinityError, match="none can be more than 0 old"):
        ages.of_step(8, of_versions(0, 0), train_s=0.1, num_rows=4)


def test_other_styles_have_no_ages_and_no_bound() -> None:
    assert Ages(Config()).of_step(9, of_versions(0, 0), train_s=0.1) == {}
