"""An engine as the explorer uses it, whatever it was written against."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from trinity.common.ports import (
        Completion,
        GenerationRequest,
        InFlight,
        RunKey,
        WeightSnapshot,
        WeightVersion,
    )

_NEEDED = {  # field of a request -> the ability that takes it
    "stop": "stop_strings",
    "stop_token_ids": "stop_strings",
    "structure": "structure",
}


def whole_engine(
    engine: Any,  # Any: a registered engine
    *,
    abilities: frozenset[str],
    name: str = "",
    in_flight: InFlight = "finish",
) -> Any:
    """Return the engine; where it lacks something, with what stands in for it.

    Args:
        engine: it.
        abilities: the words of what it can do beside the protocol ``RolloutEngine``.
        name: that it is registered by, for messages; "": that of its class.
        in_flight: what becomes of the replies under way when weights come.
    """
    swaps = in_flight != "finish" and "in_flight" in abilities
    is_whole = abilities >= {"busy_s", "scores", *_NEEDED.values()} and takes_keys(type(engine))
    if is_whole and not swaps:
        return engine
    own = name or type(engine).__name__
    return WholeEngine(
        engine, abilities=abilities, name=own, in_flight=in_flight if swaps else "finish"
    )


def takes_keys(cls: type) -> bool:
    """Return whether an engine is told which run began and ended; else only that one did."""
    methods: Any = cls  # Any: with the methods of an engine
    return all(
        len(inspect.signature(method).parameters) > 1
        for method in (methods.run_began, methods.run_ended)
    )


class WholeEngine:
    """Stands before an engine that lacks an ability, or whose ``run_began`` takes no key.

    Args:
        engine: it.
        abilities: the words of what it can do beside the protocol ``RolloutEngine``.
        name: of the engine, for messages.
        in_flight: what becomes of the replies under way when weights come.
    """

    def __init__(
        self, engine: Any, *, abilities: frozenset[str], name: str, in_flight: InFlight = "finish"
    ) -> None:
        self._engine = engine  # Any: has the methods of its abilities
        self._name = name
        self._lacks = {field: word for field, word in _NEEDED.items() if word not in abilities}
        self._has_busy_s = "busy_s" in abilities
        self._has_scores = "scores" in abilities
        self._takes_keys = takes_keys(type(engine))
        self._in_flight = in_flight

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
        """Queue a request.

        Raises:
            ModelError: it has a field that the engine does not know.
        """
        for field, word in self._lacks.items():
            if getattr(request, field):
                raise self._lacking(field, word)
        future: Future[list[Completion]] = self._engine.submit(request)
        return future

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        """Queue a text to score.

        Raises:
            ModelError: the engine cannot.
        """
        if not self._has_scores:
            raise self._lacking("model.logprobs", "scores")
        future: Future[list[float]] = self._engine.score(token_ids, temperature)
        return future

    def run_began(self, key: RunKey) -> None:
        """Note that a run may send requests."""
        self._engine.run_began(*([key] if self._takes_keys else []))

    def run_ended(self, key: RunKey) -> None:
        """Note that the run sends nothing more."""
        self._engine.run_ended(*([key] if self._takes_keys else []))

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights."""
        if self._in_flight == "finish":
            self._engine.load_weights(snapshot)
        else:
            self._engine.swap_weights(snapshot, in_flight=self._in_flight)

    def __getattr__(self, name: str) -> Any:  # Any: what a sync method of the same plugin asks for
        return getattr(self._engine, name)

    def close(self) -> None:
        """Free what the engine holds."""
        self._engine.close()

    def _lacking(self, what: str, word: str) -> ModelError:
        return ModelError(
            f"{what} is asked for, and the rollout engine {self._name} does not provide {word!r}. "
            f"Leave it out, or use an engine that does: trinity plugins show rollout_engine/NAME "
            f"says what each provides."
        )
