"""Let a part run that has less than the base class of its kind.

Plugins were written against protocols, with words of ``provides`` for what they can do. Such a part
is put into an object of the base class, which passes on what the part has: the defaults do the
rest. So is a storage that takes nothing back, and an engine that takes less than it is given.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.common.ports.engine import lacks
from trinity.common.ports.weights import TensorStream
from trinity.errors import ModelError
from trinity.extend.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from trinity.common.experience import Experience
    from trinity.common.ports import Completion, GenerationRequest, InFlight, RunKey, WeightSnapshot
    from trinity.extend import Component

_FIELDS = {  # of a request -> the ability that takes it
    "stop": "stop_strings",
    "stop_token_ids": "stop_strings",
    "structure": "structure",
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "logit_bias", "seed"), "penalties"),
}
_NEEDED = {  # of a part of the base class, for it to be used as it is
    "storage": {"put_back"},
    "rollout_engine": {*_FIELDS.values(), "weights:stream"},
}


def adapted(part: Any, component: Component, *, in_flight: InFlight = "finish") -> Any:
    """Return the part, or what stands in front of it.

    Args:
        part: an instance of the component's class (Any: each kind has its base class).
        component: what it was made of.
        in_flight: of an engine: what becomes of replies under way when weights come.
    """
    can = KINDS[component.kind].abilities_by_class(component)
    return adapted_part(part, component.kind, can=can, name=component.name, in_flight=in_flight)


def adapted_part(
    part: Any, kind: str, *, can: frozenset[str], name: str, in_flight: InFlight = "finish"
) -> Any:
    """Return a part that has these abilities, as :func:`adapted` does."""
    swaps = in_flight != "finish" and "in_flight" in can
    if isinstance(part, KINDS[kind].base()) and can >= _NEEDED.get(kind, set()) and not swaps:
        return part
    adapter = _adapter_of(part, kind, can=can)(part, can=can, name=name)
    if swaps:
        adapter.in_flight = in_flight
    return adapter


def abilities_in(part: Any, kind: str) -> frozenset[str]:  # Any: as adapted() returns it
    return part.can if isinstance(part, _Adapter) else KINDS[kind].abilities_in(type(part))


def takes_keys(cls: type) -> bool:
    """Return whether an engine is told which run began and ended; else only that one did."""
    methods = (getattr(cls, name, None) for name in ("run_began", "run_ended"))
    return all(len(inspect.signature(one).parameters) > 1 for one in methods if one is not None)


def _adapter_of(part: Any, kind: str, *, can: frozenset[str]) -> type:
    """Return a class of the base that passes on what a part has and says that it can.

    The part itself is asked, not its class: it may have set an attribute in ``__init__``, or find
    a method by ``__getattr__``.
    """
    cls, base, own = type(part), KINDS[kind].base(), _OWN.get(kind, _Adapter)
    unsaid = {name for one in KINDS[kind].abilities if one.word not in can for name in one.members}
    public = {name for name in dir(base) if name[:1] != "_"} | {"__len__", "__call__"}
    passed = {
        name: property(lambda self, name=name: getattr(self.part, name))
        for name in public - unsaid - vars(own).keys()
        if hasattr(part, name)
    }
    return type(cls.__name__, (own, base), passed | {"__qualname__": cls.__qualname__})


class _Adapter:
    """Holds a part (Any: of any class), what it can do and the name that it is registered by."""

    def __init__(self, part: Any, *, can: frozenset[str], name: str) -> None:
        self.part, self.can, self.name = part, can, name

    def __getattr__(self, name: str) -> Any:  # Any: what a sync method of the same plugin asks for
        return getattr(self.part, name)


class _StorageAdapter(_Adapter):
    """Keeps what was put back, where a storage takes nothing back, and gives it out first."""

    def __init__(self, part: Any, *, can: frozenset[str], name: str) -> None:
        super().__init__(part, can=can, name=name)
        self._returned: list[Experience] = []

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return what was put back, then what comes next."""
        rows, rest = self._returned[:count], count - len(self._returned)
        if rest > 0:
            try:
                rows = rows + self.part.read(
                    rest, timeout_s=timeout_s, min_model_version=min_model_version
                )
            except StopIteration:
                if not rows:
                    raise
        self._returned = self._returned[count:]
        return rows

    def put_back(self, experiences: Sequence[Experience]) -> None:
        if "put_back" in self.can:
            self.part.put_back(experiences)
        else:
            self._returned = [*experiences, *self._returned]

    def available(self) -> int:
        return len(self._returned) + int(self.part.available())

    def waiting(self) -> list[Experience]:
        own = self.part.waiting() if "waiting" in self.can else ()
        return [*self._returned, *own]


class _EngineAdapter(_Adapter):
    """Refuses by name what an engine does not know, and brings weights as the run wants it."""

    in_flight: InFlight = "finish"

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request.

        Raises:
            ModelError: it has a field that the engine does not know.
        """
        for field, word in _FIELDS.items():
            if word not in self.can and getattr(request, field):
                raise ModelError(lacks(self.name, field, word))
        future: Future[list[Completion]] = self.part.submit(request)
        return future

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        if "scores" not in self.can:
            raise ModelError(lacks(self.name, "model.logprobs", "scores"))
        future: Future[list[float]] = self.part.score(token_ids, temperature)
        return future

    def run_began(self, key: RunKey) -> None:
        self._note("run_began", key)

    def run_ended(self, key: RunKey) -> None:
        self._note("run_ended", key)

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        if isinstance(snapshot.tensors, TensorStream) and "weights:stream" not in self.can:
            tensors = {name: tensor.cpu() for name, tensor in snapshot.tensors.items()}
            snapshot = replace(snapshot, tensors=tensors)
        if self.in_flight == "finish":
            self.part.load_weights(snapshot)
        else:
            self.part.swap_weights(snapshot, in_flight=self.in_flight)

    def _note(self, method: str, key: RunKey) -> None:
        if hasattr(self.part, method):
            getattr(self.part, method)(*([key] if takes_keys(type(self.part)) else []))


_OWN = {"storage": _StorageAdapter, "rollout_engine": _EngineAdapter}
