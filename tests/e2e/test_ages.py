"""What is trained is as old as its style lets it be, and no older: read from what was trained."""

from __future__ import annotations

import pytest
import trinity
from trinity.common.config import load_config
from trinity.common.ports import Observation
from trinity.monitor.jsonl import read_metrics
from trinity_lab.advisors.rollouts import staleness_of

MORE = pytest.mark.acceptance  # numbers and storages of which one of the kind is always run


@pytest.mark.parametrize(
    ("style", "settings", "oldest"),
    [
        pytest.param(
            "fixed", {"sync_offset": 1}, 3, marks=MORE
        ),  # all but the last batch of two steps
        pytest.param("fixed", {}, 1, marks=MORE),
        pytest.param("fixed", {"sync_interval": 2, "sync_offset": 1}, 5, marks=MORE),
        pytest.param("explorer_driven", {"sync_interval": 2}, 3, marks=MORE),
        ("trainer_driven", {"sync_interval": 3}, 3),  # the fourth, left over at the first sync
        pytest.param("trainer_driven", {"sync_interval": 2}, 1, marks=MORE),
    ],
)
@pytest.mark.parametrize("storage", ["queue", pytest.param("sql", marks=MORE)])
def test_the_oldest_of_two_batches_a_step_has_the_age_that_follows_from_the_style(
    config_dict, write_yaml, style, settings, oldest, storage
) -> None:
    config_dict["buffer"] |= {"batch_size": 1, "total_steps": 6, "train_batch_size": 2}
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": {"storage_type": storage}}
    config_dict["synchronizer"] = {"sync_style": style} | settings

    result = trinity.run(load_config(write_yaml(config_dict)), local=True)

    rows = [row for row in read_metrics(result.directory / "monitor") if row["role"] == "trainer"]
    ages = [row["step"] - 1 - row["sample/model_version/min"] for row in rows]
    assert len(ages) == 12
    assert max(ages) == oldest
    told = [
        staleness_of(Observation(role="trainer", step=row["step"], metrics=row)) for row in rows
    ]
    assert min(ages) <= min(told) <= max(told) <= oldest
    assert any(told)
