"""Who samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from trinity.common.ports.request import Completion, GenerationRequest, RunKey
    from trinity.common.ports.weights import WeightSnapshot, WeightVersion

__all__ = ["Busy", "InFlight", "Preflight", "RolloutEngine", "Scores", "SwapsInFlight"]

#: What becomes of the replies that are under way when weights come.
InFlight = Literal["finish", "abort", "keep"]


class RolloutEngine(Protocol):
    """Samples continuations; thread-safe.

    It is made with those of the fields of ``explorer.rollout_model`` and of the entries of its
    ``extra_engine_args`` that its constructor names; ``model_path``, ``max_model_len`` and
    ``trust_remote_code`` are those of ``model`` where that section has none. One that provides
    ``shares_module`` gets ``module`` too.
    """

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request; the future gives ``n`` completions or a ``ModelError``.

        Its ``cancel()`` gives the request up until there is an answer: nothing is computed for it
        any more than the step that is under way.
        """

    def run_began(self, key: RunKey) -> None:
        """Note that a run may send requests: a batch waits for it (determinism contract).

        Args:
            key: of its first request; the run is its ``batch``, ``task`` and ``run``.
        """

    def run_ended(self, key: RunKey) -> None:
        """Note that the run that began with this key sends nothing more."""

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights in place, between two batches."""

    def close(self) -> None:
        """Free what the engine holds; waiting requests fail with ``ModelError``."""


class Busy(Protocol):
    """Ability ``busy_s`` of an engine. Without it, the metric of the engines' load reads 0."""

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engine has spent on generating."""


class Preflight(Protocol):
    """Ability ``preflight`` of an engine. Without it, what it cannot run is found at its start."""

    @staticmethod
    def preflight(**arguments: Any) -> list[str]:
        """Return what would keep an engine made with these arguments from running, in sentences.

        It loads nothing heavy: ``trinity config check`` calls it (Any: each argument its own type).
        """


class Limits(Protocol):
    """Ability ``limits`` of an engine. Without it, a request finds out what is refused."""

    @staticmethod
    def limits(**arguments: Any) -> list[str]:
        """Return what an engine made with these arguments refuses though it runs, in sentences.

        They are notices of ``trinity config check`` and of a run's header; nothing heavy is loaded
        (Any: each argument its own type).
        """


class Scores(Protocol):
    """Ability ``scores`` of an engine. Without it, ``model.logprobs`` is refused by name."""

    def score(self, token_ids: Sequence[int], temperature: float) -> Future[list[float]]:
        """Queue a text; the future gives a log-probability for each token but the first.

        They are natural ones under the full softmax at the temperature, given the tokens before;
        a text that cannot be scored is a ``ModelError``.
        """


class SwapsInFlight(Protocol):
    """Ability ``in_flight`` of an engine. Without it, weights wait for what is being answered."""

    def swap_weights(self, snapshot: WeightSnapshot, *, in_flight: InFlight) -> None:
        """Replace the weights in place between two steps; returns when it is done.

        No key or value that old weights made is used afterwards, and each log-probability is of
        the version that its token was sampled with (``Completion.version_spans``).

        Args:
            snapshot: the weights.
            in_flight: of the replies under way: ``finish``: they end first, as with
                ``load_weights``; ``abort``: they begin anew with the new weights; ``keep``: they
                go on with the new weights after the tokens that they have.
        """
