"""Several monitors of a run, and what they can show."""

from __future__ import annotations

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.problem import listed


@pytest.fixture
def said(cpu, builtin_only, a_run):
    """Return a function that gives what is said against these settings."""

    def run(*overrides: str) -> str:
        config = resolve(load_config(a_run(), overrides=overrides), cpu)
        return "\n".join(listed(check(config, cpu)))

    return run


def test_a_monitor_beside_another_is_checked_as_the_first_is(said) -> None:
    assert "monitor.also" not in said("monitor.also=[]")

    unknown = said("monitor.monitor_type=jsonl", "monitor.also=[{monitor_type: tensorbord}]")

    assert "monitor.also.0.monitor_type" in unknown
    assert "tensorboard" in unknown  # what was meant


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ("{monitor_type: jsonl}", "jsonl is already there: always written."),
        ("{monitor_type: tensorboard}", "tensorboard is already there: monitor.monitor_type."),
        ("{monitor_args: {a: 1}}", "is missing. Name the monitor."),
    ],
)
def test_an_entry_that_adds_no_monitor_is_named(said, also, message) -> None:
    assert message in said("monitor.monitor_type=tensorboard", f"monitor.also=[{also}]")


def test_samples_that_are_not_kept_cannot_be_shown(said) -> None:
    settings = ["monitor.sample_interval=5", "buffer.record_samples=false"]

    assert "monitors show recorded samples, and buffer.record_samples is false" in said(*settings)
    assert "sample_interval" not in said("monitor.sample_interval=5")
