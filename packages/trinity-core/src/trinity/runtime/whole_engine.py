"""An engine as the explorer uses it, whatever it was written against."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

    from trinity.common.ports import (
        Completion,
        GenerationRequest,
        RunKey,
        WeightSnapshot,
        WeightVersion,
    )

__all__ = ["WholeEngine", "takes_keys", "whole_engine"]


def whole_engine(engine: Any, *, abilities: frozenset[str]) -> Any:  # Any: a registered engine
    """Return the engine; where it lacks something, with what stands in for it."""
    if "busy_s" in abilities and takes_keys(type(engine)):
        return engine
    return WholeEngine(engine, abilities=abilities)


def takes_keys(cls: type) -> bool:
    """Return whether an engine is told which run began and ended; else only that one did."""
    methods: Any = cls  # Any: with the methods of an engine
    return all(
        len(inspect.signature(method).parameters) > 1
        for method in (methods.run_began, methods.run_ended)
    )


class WholeEngine:
    """Stands before an engine without ``busy_s``, or whose ``run_began`` takes no key.

    Args:
        engine: it.
        abilities: the words of what it can do beside the protocol ``RolloutEngine``.
    """

    def __init__(self, engine: Any, *, abilities: frozenset[str]) -> None:
        self._engine = engine  # Any: has the methods of its abilities
        self._has_busy_s = "busy_s" in abilities
        self._takes_keys = takes_keys(type(engine))

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        version: WeightVersion = self._engine.version
        return version

    @property
    def busy_s(self) -> float:
        """Return how many seconds it has spent on generating; 0: it does not say."""
        return float(self._engine.busy_s) if self._has_busy_s else 0.0

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request."""
        future: Future[list[Completion]] = self._engine.submit(request)
        return future

    def run_began(self, key: RunKey) -> None:
        """Note that a run may send requests."""
        self._engine.run_began(*([key] if self._takes_keys else []))

    def run_ended(self, key: RunKey) -> None:
        """Note that the run sends nothing more."""
        self._engine.run_ended(*([key] if self._takes_keys else []))

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights."""
        self._engine.load_weights(snapshot)

    def __getattr__(self, name: str) -> Any:  # Any: what a sync method of the same plugin asks for
        return getattr(self._engine, name)

    def close(self) -> None:
        """Free what the engine holds."""
        self._engine.close()
