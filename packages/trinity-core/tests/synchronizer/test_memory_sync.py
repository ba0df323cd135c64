"""A sync in memory brings one version to every engine, or is not a sync."""

from __future__ import annotations

import pytest
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import ModelError
from trinity.synchronizer.memory_sync import MemorySync


class Engine:
    """Keeps the version of the weights that it took, all of them or none."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.version = WeightVersion(0)
        self._refuses = refuses

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        if self._refuses:
            raise ModelError("the snapshot is of another model")
        self.version = snapshot.version


def weights(step: int) -> WeightSnapshot:
    return WeightSnapshot(version=WeightVersion(step), tensors={})


def test_every_engine_has_the_version_that_is_returned() -> None:
    engines = [Engine(), Engine()]

    version = MemorySync(engines).sync(lambda: weights(3))

    assert [engine.version for engine in engines] == [version, version] == [WeightVersion(3)] * 2


def test_a_sync_that_one_engine_refuses_is_raised_and_tells_no_version() -> None:
    engines = [Engine(), Engine(refuses=True), Engine()]

    with pytest.raises(ModelError, match="of another model"):
        MemorySync(engines).sync(lambda: weights(3))

    assert engines[1].version == WeightVersion(0)
