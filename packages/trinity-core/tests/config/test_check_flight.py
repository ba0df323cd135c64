"""What cannot go with groups in flight is refused before the run."""

from __future__ import annotations

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"synchronizer.sync_interval": 3}, "is 3, but after 2 batches"),
        ({"synchronizer.sync_offset": 1}, "sync_style fully_async has no such steps"),
        ({"buffer.train_batch_size": 5}, "trains buffer.batch_size whole groups at a time"),
        ({"algorithm.sample_strategy": "staleness_control"}, "needs all untrained experiences"),
        (
            {"algorithm.advantage_fn_args": {"std_cal_level": "batch"}},
            "advantage_fn grpo compares the groups of a step with each other",
        ),
        (
            {"algorithm.advantage_fn_args": {"std_threshold": 0.0, "duplicate_experiences": True}},
            "advantage_fn grpo compares the groups of a step with each other",
        ),
    ],
)
def test_what_groups_in_flight_cannot_go_with_is_refused(
    builtin_only, a_run, settings, message
) -> None:
    config = load_config(a_run())
    config.synchronizer.sync_style = "fully_async"
    for path, value in settings.items():
        section, name = path.split(".")
        setattr(getattr(config, section), name, value)

    with pytest.raises(ConfigError, match=message):
        config.check_and_update()


def test_an_offset_that_is_refused_is_not_noted_as_ignored_too(builtin_only, a_run, cpu) -> None:
    config = load_config(a_run())
    config.synchronizer.sync_style, config.synchronizer.sync_offset = "fully_async", 2

    found = [one.severity for one in check(resolve(config, cpu), cpu) if "sync_offset" in one.path]

    assert found == ["error"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [("over_rollout.ratio", {"ratio": 0.2}), ("dynamic_timeout.enable", {"enable": True})],
)
def test_other_styles_cut_no_run_by_the_clock(builtin_only, a_run, name, settings) -> None:
    config = load_config(a_run())
    setattr(config.explorer, name.partition(".")[0], settings)

    with pytest.raises(ConfigError, match=rf"explorer\.{name}: cuts off rollouts by the clock"):
        config.check_and_update()
