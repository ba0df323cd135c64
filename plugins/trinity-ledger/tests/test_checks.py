"""What keeps a ledger from being used is found before the run."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity_ledger.address import address_of
from trinity_ledger.checks import ledger_problems


def a_config(mode, *, path=None, **changes):
    config = Config()
    config.mode = mode
    section = ExperienceBufferConfig(storage_type="sql", path=path)
    config.buffer.trainer_input.experience_buffer = section
    config.algorithm.optimizer.lr_warmup_steps_ratio = 0.0
    for key, value in changes.items():
        *sections, name = key.split("__")
        place = config
        for one in sections:
            place = getattr(place, one)
        setattr(place, name, value)
    return config


def found(mode="both", path=None, *, severity="error", **changes):
    config = a_config(mode, path=path, **changes)
    return [problem for problem in ledger_problems(config) if problem.severity == severity]


def problems(mode="both", path=None, **changes):
    return [problem.message for problem in found(mode, path, **changes)]


@pytest.mark.parametrize("mode", ["both", "explore", "train"])
def test_a_ledger_has_a_path_of_its_own_in_every_mode(mode) -> None:
    assert problems(mode) == []
    assert problems(mode, "sqlite:///run.db") == []


def test_a_path_that_names_no_database_is_refused() -> None:
    (said,) = problems(path="mysql://me:secret@host/db")

    assert said == "is 'mysql://me:***@host/db', which names no file and no PostgreSQL database."


def test_published_forms_with_a_driver_name_the_same_database() -> None:
    assert address_of("postgresql+psycopg2://me@db/runs") == address_of("postgres://me@db/runs")
    assert address_of("sqlite+pysqlite:///run.db") == address_of("run.db")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://db/runs?user=me&password=secret&x=1",
            "postgresql://db/runs?user=me&password=***&x=1",
        ),
        ("postgresql://db/runs?sslpassword=secret", "postgresql://db/runs?sslpassword=***"),
        ("postgresql://me:p@secret@db/runs", "postgresql://me:***@db/runs"),
        ("postgresql://me:p/secret@db/runs", "postgresql://me:***@db/runs"),
        ("postgresql://me@db/runs?user=a@b", "postgresql://me@db/runs?user=a@b"),
    ],
)
def test_a_password_is_not_shown_wherever_it_stands(url, shown) -> None:
    assert address_of(url).name == shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"explorer__name": "trainer"}, "is 'trainer', but it must be usable as a folder name"),
        ({"explorer__name": "../x"}, "is '../x', but it must be usable as a folder name"),
        (
            {"continue_from_checkpoint": False},
            "standalone explorer and trainer share one run directory",
        ),
    ],
)
def test_explorers_share_a_directory_under_names_of_their_own(changes, said) -> None:
    assert [one for one in problems("explore", **changes) if said in one] != []


KEY = "synchronizer__standalone"


@pytest.mark.parametrize(
    ("mode", "other", "instead"),
    [
        (
            "train",
            "standalone explorers",
            "train once on the experiences in the buffer",
        ),
        ("explore", "a standalone trainer", "fill the buffer for a later training"),
    ],
)
def test_a_run_that_waits_for_another_says_so_and_how_it_would_not(mode, other, instead) -> None:
    (meant,) = found(mode, severity="notice")
    (asked,) = found(mode, severity="notice", **{KEY: True})

    said = f"is {mode}: with storage_type sql this run waits for {other} ({KEY}: true)."
    assert meant.message == said.replace("__", ".")
    assert meant.remedy.endswith(f" To {instead}, set synchronizer.standalone to false.")
    assert asked.message == f"is {mode}: this run waits for {other}."
    assert "standalone" not in asked.remedy
    assert meant.path == asked.path == "mode"
    assert found(mode, severity="notice", **{KEY: False}) == []


def test_runs_that_wait_for_nobody_are_not_asked_what_waiting_needs() -> None:
    assert problems("both", severity="notice") == []
    kind = {"algorithm__optimizer__lr_scheduler_type": "cosine", KEY: False}
    assert problems("train", **kind) == []


@pytest.mark.parametrize("mode", ["explore", "train"])
def test_runs_that_wait_for_nobody_have_their_part_of_a_run_directory_too(mode) -> None:
    (said,) = problems(mode, continue_from_checkpoint=False, **{KEY: False})

    assert said == "is false, but standalone explorer and trainer share one run directory."


def test_epochs_over_a_sql_buffer_are_told_to_be_one() -> None:
    told = problems("train", severity="notice", buffer__total_epochs=3, **{KEY: False})

    assert told == ["is 3, but each experience of a SQL buffer is trained once."]
    assert problems("explore", severity="notice", buffer__total_epochs=3, **{KEY: False}) == []


def test_a_standalone_trainer_without_an_end_wants_a_constant_rate() -> None:
    kind = {"algorithm__optimizer__lr_scheduler_type": "cosine"}

    assert problems("train", **kind) == ["is cosine, which needs the number of all steps."]
    assert problems("train", **kind, trainer__total_steps=9) == []


def test_groups_in_flight_may_lie_in_a_ledger() -> None:
    assert problems(synchronizer__sync_style="fully_async") == []
