"""Whether explorer and trainer are separate runs that wait for each other is one key."""

from __future__ import annotations

import pytest
from trinity.common.config import load_config, resolve
from trinity.common.config.arithmetic import arithmetic

LEDGER = "buffer.trainer_input.experience_buffer={storage_type: sql}"


def resolved(path, machine, *overrides):
    return resolve(load_config(path, overrides=overrides), machine)


@pytest.mark.parametrize(
    ("mode", "standalone", "is_standalone", "said"),
    [
        ("explore", "null", True, "the explorer pulls the newest weights every 2 steps of its own"),
        ("train", "null", True, "the trainer publishes its weights every step of its own"),
        ("train", "true", True, "the trainer publishes its weights every step of its own"),
        ("explore", "false", False, "each experience of the SQL buffer is kept"),
        ("train", "false", False, "each experience of the SQL buffer is trained once"),
    ],
)
def test_a_run_over_a_ledger_waits_for_another_where_nobody_says_otherwise(
    a_run, cpu, mode, standalone, is_standalone, said
) -> None:
    settings = [f"synchronizer.standalone={standalone}", "synchronizer.explorer_sync_interval=2"]
    config = resolved(a_run(), cpu, f"mode={mode}", LEDGER, *settings)

    assert config.is_standalone == is_standalone
    assert config.shares_run_directory
    assert config.synchronizer.sync_method == ("checkpoint" if is_standalone else "memory")
    assert arithmetic(config)[-1] == said
    assert not any("synchronizer.standalone" in note for note in config.notes)


def test_whether_runs_are_separate_is_not_read_where_there_are_none(a_run, cpu) -> None:
    config = resolved(a_run(), cpu, LEDGER, "synchronizer.standalone=false")
    other = resolved(a_run(), cpu, "mode=explore", "synchronizer.standalone=false")

    assert config.notes == other.notes == [
        "not used in this run, read only by modes explore and train with storage sql: "
        "synchronizer.standalone"
    ]  # fmt: skip
    assert not config.is_standalone
    assert not config.shares_run_directory


def test_explorers_that_only_fill_a_ledger_do_not_do_the_same(a_run, cpu) -> None:
    settings = ["mode=explore", LEDGER, "synchronizer.standalone=false"]
    seeds = [resolved(a_run(), cpu, *settings, f"explorer.name={name}").seed for name in "ab"]

    assert seeds[0] != seeds[1]
