"""A ledger knows the run directory that it belongs to, and all sides of a run name the same."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.errors import ConfigError
from trinity.runtime.ledger_of_run import own_part, use_of_buffer
from trinity.runtime.record.rundir import RunDir


def use_of(root, mode, *, storage="sql", standalone=None):
    config = Config()
    config.synchronizer.standalone = standalone
    config.mode, config.checkpoint_root_dir = mode, str(root)
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type=storage)
    rundir = RunDir(root / "p" / "name")
    return use_of_buffer(
        config, rundir=rundir.explorer("explorer") if mode == "explore" else rundir
    )


def test_all_sides_of_a_run_have_one_id_and_another_root_has_another(tmp_path) -> None:
    trains, explores = (use_of(tmp_path / "one", mode) for mode in ("train", "explore"))
    other = use_of(tmp_path / "two", "train")

    assert trains.id == explores.id == (tmp_path / "one/p/name/buffer/ledger.id").read_text()
    assert trains.run == explores.run == other.run == "p/name"
    assert other.id != trains.id


@pytest.mark.parametrize("standalone", [None, True, False])
def test_a_trainer_is_offline_where_no_explorer_runs_beside_it(tmp_path, standalone) -> None:
    trains, explores, both = (
        use_of(tmp_path, mode, standalone=standalone) for mode in ("train", "explore", "both")
    )

    assert (trains.side, explores.side, both.side) == ("train", "explore", "both")
    assert trains.is_offline == (standalone is False)
    assert not explores.is_offline
    assert not both.is_offline
    assert explores.owner == "explorer"


@pytest.mark.parametrize(
    ("standalone", "why"), [(True, "waits for the other side"), (False, "another than that of")]
)
def test_a_stage_is_no_part_of_a_run_over_a_ledger(tmp_path, standalone, why) -> None:
    config = Config(name="run/second", mode="train")
    config.synchronizer.standalone = standalone
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type="sql")

    with pytest.raises(ConfigError, match=rf"stage run/second is of mode train .*{why}"):
        own_part([Config(), config], rundir=RunDir(tmp_path))


def test_a_run_without_a_ledger_gets_no_id(tmp_path) -> None:
    assert use_of(tmp_path, "both", storage="queue").id == ""
    assert not (tmp_path / "p").exists()


def test_an_id_that_a_kill_left_empty_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("trinity.runtime.ledger_of_run._WRITTEN_S", 0.1)
    path = tmp_path / "p/name/buffer/ledger.id"
    path.parent.mkdir(parents=True)
    path.write_text("")

    with pytest.raises(ConfigError, match=r"ledger.id is empty: .* Remove it, then run the same"):
        use_of(tmp_path, "train")
