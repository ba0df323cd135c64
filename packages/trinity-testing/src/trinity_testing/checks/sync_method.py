"""What every way to bring weights to the engines must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import ModelError
from trinity.extend import KINDS

from trinity_testing.check import Check, CheckContext, Finding

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.extend.component import Component

__all__ = ["checks"]

NUM_ENGINES = 3
VERSION = WeightVersion(7)


class _Engine:
    """Keeps a copy of what it loads."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.version = WeightVersion(0)
        self.tensors: dict[str, Tensor] = {}
        self._is_broken = is_broken

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Copy the weights."""
        if self._is_broken:
            raise ModelError("this engine cannot load weights, as it was told to")
        self.tensors = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
        self.version = snapshot.version


class _Trainer:
    """Gives its own tensors, which are a version newer each time they are asked for."""

    def __init__(self) -> None:
        self.tensors = {
            "embed.weight": torch.arange(12.0).reshape(4, 3),
            "norm.weight": torch.tensor([0.1, -1e-8, 3.0], dtype=torch.bfloat16),
        }
        self.num_asked = 0

    def snapshot(self) -> WeightSnapshot:
        version = WeightVersion(VERSION + self.num_asked)
        self.num_asked += 1
        return WeightSnapshot(version=version, tensors=self.tensors)


def reaches_all_engines(component: Component, context: CheckContext) -> Finding | None:
    """Find a way that leaves an engine without the weights, or engines with different ones."""
    engines, method = _made(component, context)
    method.sync(_Trainer().snapshot)
    versions = [int(engine.version) for engine in engines]
    if versions != [VERSION] * NUM_ENGINES:
        return Finding(f"version {VERSION} was to be loaded, the engines have {versions}")
    return None


def brings_the_tensors(component: Component, context: CheckContext) -> Finding | None:
    """Find a way on which a tensor changes: its values, its type, its name."""
    engines, method = _made(component, context)
    trainer = _Trainer()
    wanted = {name: tensor.clone() for name, tensor in trainer.tensors.items()}
    method.sync(trainer.snapshot)
    for whose, tensors in [("the trainer", trainer.tensors), *_loaded(engines)]:
        if tensors.keys() != wanted.keys():
            return Finding(f"{whose} has {sorted(tensors)}, not {sorted(wanted)}")
        for name, tensor in wanted.items():
            if tensors[name].dtype != tensor.dtype or not torch.equal(tensors[name], tensor):
                return Finding(f"{name} of {whose} is {tensors[name].flatten()[:3].tolist()}")
    return None


def returns_the_version(component: Component, context: CheckContext) -> Finding | None:
    """Find a way that returns another version than it brought."""
    engines, method = _made(component, context)
    returned = method.sync(_Trainer().snapshot)
    newest = max(int(engine.version) for engine in engines)
    if isinstance(returned, bool) or not isinstance(returned, int) or returned != newest:
        return Finding(f"it brought version {newest} and returned {returned!r}")
    return None


def hides_no_failure(component: Component, context: CheckContext) -> Finding | None:
    """Find a way that goes on when an engine could not load: all engines have them, or an error."""
    engines, method = _made(component, context, broken=1)
    try:
        method.sync(_Trainer().snapshot)
    except ModelError:
        return None
    versions = [int(engine.version) for engine in engines]
    return Finding(f"engine 1 could not load, nothing was raised, and they have {versions}")


def syncs_again(component: Component, context: CheckContext) -> Finding | None:
    """Find a way that works once."""
    engines, method = _made(component, context)
    trainer = _Trainer()
    for number in range(2):
        trainer.num_asked = number
        method.sync(trainer.snapshot)
        trainer.tensors["embed.weight"] += 1.0
    versions = [int(engine.version) for engine in engines]
    firsts = [float(engine.tensors["embed.weight"][0, 0]) for engine in engines if engine.tensors]
    if versions[0] != VERSION + 1 or firsts[:1] != [1.0]:
        return Finding(f"after a second sync, the first engine has {versions[0]}: {firsts[:1]}")
    return None


def _made(
    component: Component, context: CheckContext, *, broken: int | None = None
) -> tuple[list[_Engine], Any]:
    engines = [_Engine(is_broken=number == broken) for number in range(NUM_ENGINES)]
    method = KINDS["sync_method"].made(
        context.load(component), context.arguments(component), engines=engines
    )
    return engines, method


def _loaded(engines: list[_Engine]) -> list[tuple[str, dict[str, Tensor]]]:
    return [(f"engine {n}", one.tensors) for n, one in enumerate(engines) if one.tensors]


_KINDS = frozenset({"sync_method"})
checks = (
    Check(
        id="sync_method.all_engines",
        function=reaches_all_engines,
        remedy="Ask for one snapshot, and give it to every engine.",
        kinds=_KINDS,
    ),
    Check(
        id="sync_method.tensors",
        function=brings_the_tensors,
        remedy="Hand on what the snapshot holds; cast and change nothing in place.",
        kinds=_KINDS,
    ),
    Check(
        id="sync_method.version",
        function=returns_the_version,
        remedy="Return snapshot.version.",
        kinds=_KINDS,
    ),
    Check(
        id="sync_method.failure",
        function=hides_no_failure,
        remedy="Let the engine's error through: the run goes back to its checkpoint.",
        kinds=_KINDS,
    ),
    Check(
        id="sync_method.again",
        function=syncs_again,
        remedy="Keep nothing from one sync to the next but what is still true.",
        kinds=_KINDS,
    ),
)
