"""Which side of a run this is follows from its mode, and whether the sides are separate runs."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.errors import ConfigError
from trinity.runtime.record.rundir import RunDir
from trinity.runtime.run_sides import own_part, use_of_buffer


def use_of(root, mode, *, standalone=None):
    config = Config()
    config.synchronizer.standalone = standalone
    config.mode, config.checkpoint_root_dir = mode, str(root)
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type="sql")
    rundir = RunDir(root / "p" / "name")
    return use_of_buffer(
        config, rundir=rundir.explorer("explorer") if mode == "explore" else rundir
    )


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
    assert {one.run for one in (trains, explores, both)} == {"p/name"}
    assert trains.directory == explores.directory == tmp_path / "p/name/buffer"
    assert not trains.directory.exists()


@pytest.mark.parametrize(
    ("standalone", "why"), [(True, "waits for the other side"), (False, "another than that of")]
)
def test_a_stage_is_no_part_of_a_run_over_a_ledger(tmp_path, standalone, why) -> None:
    config = Config(name="run/second", mode="train")
    config.synchronizer.standalone = standalone
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type="sql")

    with pytest.raises(ConfigError, match=rf"stage run/second is of mode train .*{why}"):
        own_part([Config(), config], rundir=RunDir(tmp_path))
