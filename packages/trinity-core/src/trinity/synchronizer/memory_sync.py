"""Hand weights over inside one process, or to engines that sleep while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.ports import SyncMethod

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.ports import RolloutEngine, WeightSnapshot, WeightVersion


class MemorySync(SyncMethod):
    """Gives every engine the trainer's tensors, which each engine copies into its own model.

    Nothing is copied here: an engine that was built on the trainer's own module only takes over
    the version number.

    Each engine takes all of the weights or none. There is no way back for those that took them when
    another refuses: the error ends the run, nobody samples in between, and a resumed run gives
    every engine the weights of its checkpoint.
    """

    def __init__(self, engines: Sequence[RolloutEngine]) -> None:
        self._engines = list(engines)

    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        weights = snapshot()
        for engine in self._engines:
            engine.load_weights(weights)
        return weights.version


class ColocatedSync(SyncMethod):
    """Lets engines sleep in train steps, and wakes them around the sync method of the run.

    They begin awake, in a resumed run too. Weights get their memory first and are replaced, then
    the cache gets its own.
    """

    def __init__(self, sync: SyncMethod, engines: Sequence[RolloutEngine]) -> None:
        self._sync, self._engines, self.is_asleep = sync, engines, False

    def sleep(self) -> None:
        for engine in () if self.is_asleep else self._engines:
            engine.sleep(2)
        self.is_asleep = True

    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        sleeping = self._engines if self.is_asleep else ()
        for engine in sleeping:
            engine.wake_up(["weights"])
        version = self._sync.sync(snapshot)
        for engine in sleeping:
            engine.wake_up(["kv_cache"])
        self.is_asleep = False
        return version
