"""What keeps a ledger from being used is found before the run."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.config.check_ledger import ledger_problems
from trinity.common.config.database_path import address_of


def problems(mode="both", path=None, *, severity="error", **changes):
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
    found = [problem for problem in ledger_problems(config) if problem.severity == severity]
    return [f"{problem.message}" for problem in found]


@pytest.mark.parametrize("mode", ["both", "explore", "train", "bench"])
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
        ({"explorer__name": "trainer"}, "is 'trainer', which names a folder"),
        ({"explorer__name": "../x"}, "is '../x', which names a folder"),
        ({"continue_from_checkpoint": False}, "explorer and trainer meet in one run directory"),
    ],
)
def test_explorers_apart_share_a_directory_under_names_of_their_own(changes, said) -> None:
    assert [one for one in problems("explore", **changes) if said in one] != []


def test_one_side_names_the_other_that_it_waits_for() -> None:
    explores, trains = (problems(mode, severity="notice") for mode in ("explore", "train"))

    said = "is {}: with storage_type sql this run {}, and waits for one that {}."
    assert explores == [said.format("explore", "explores", "trains")]
    assert trains == [said.format("train", "trains", "explores")]
    assert problems("both", severity="notice") == []


def test_a_trainer_apart_without_an_end_wants_a_constant_rate() -> None:
    kind = {"algorithm__optimizer__lr_scheduler_type": "cosine"}

    assert problems("train", **kind) == ["is cosine, which needs the number of all steps."]
    assert problems("train", **kind, trainer__total_steps=9) == []


def test_groups_in_flight_may_lie_in_a_ledger() -> None:
    assert problems(synchronizer__sync_style="fully_async") == []
