"""Ways to bring weights to the engines, one right, the others with one mistake each."""

import contextlib

from trinity.common.ports import SyncMethod, WeightSnapshot
from trinity.errors import ModelError


class RightSync(SyncMethod):
    """Is right: gives one snapshot to every engine."""

    def __init__(self, engines):
        self.engines = engines

    def sync(self, snapshot):
        weights = snapshot()
        for engine in self.engines:
            engine.load_weights(weights)
        return weights.version


class ForgetsTheLast(RightSync):
    """Leaves the last engine as it was."""

    def __init__(self, engines):
        super().__init__(engines[:-1])


class ChangesTheType(RightSync):
    """Makes float16 of every tensor, to travel light."""

    def sync(self, snapshot):
        weights = snapshot()
        tensors = {name: tensor.half() for name, tensor in weights.tensors.items()}
        return super().sync(lambda: WeightSnapshot(version=weights.version, tensors=tensors))


class ReturnsNothing(RightSync):
    """Does not say which version it brought."""

    def sync(self, snapshot):
        super().sync(snapshot)


class HidesFailures(RightSync):
    """Goes on where an engine could not load."""

    def sync(self, snapshot):
        weights = snapshot()
        for engine in self.engines:
            with contextlib.suppress(ModelError):
                engine.load_weights(weights)
        return weights.version


class SyncsOnce(RightSync):
    """Keeps the first snapshot, and gives it out again."""

    first = None

    def sync(self, snapshot):
        self.first = self.first or snapshot()
        return super().sync(lambda: self.first)
