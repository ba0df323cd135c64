"""Who samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from trinity.common.ports.request import Completion, GenerationRequest, RunKey
    from trinity.common.ports.trainer import WeightDigest
    from trinity.common.ports.weights import WeightSnapshot, WeightVersion

#: What becomes of the replies that are under way when weights come.
InFlight = Literal["finish", "abort", "keep"]


class RolloutEngine(ABC):
    """Samples continuations; thread-safe.

    It is made with those of the fields of ``explorer.rollout_model`` and of the entries of its
    ``extra_engine_args`` that its constructor names; ``model_path``, ``max_model_len`` and
    ``trust_remote_code`` are those of ``model`` where that section has none. One that names
    ``module`` gets the trainer's model, if both can share it, else None.
    """

    version: WeightVersion  # of the weights that the next request is answered with
    busy_s: float = 0.0  # seconds that it has spent on generating; 0: it does not say
    takes_stop_strings: bool = False  # ``stop`` and ``stop_token_ids`` of a request end replies
    takes_penalties: bool = False  # of a request, its ``logit_bias`` and its ``seed`` too
    takes_structure: bool = False  # replies match a request's ``structure``
    takes_adapters: bool = False  # ``load_weights`` takes adapters alone, see ``WeightSnapshot``
    takes_stream: bool = False  # ``load_weights`` reads each tensor once, in their order

    @abstractmethod
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

    @abstractmethod
    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights in place, between two batches."""

    def close(self) -> None:
        """Free what the engine holds; waiting requests fail with ``ModelError``."""

    def swap_weights(self, snapshot: WeightSnapshot, *, in_flight: InFlight) -> None:
        """Replace the weights in place between two steps; returns when it is done.

        No key or value that old weights made is used afterwards, and each log-probability is of
        the version that its token was sampled with (``Completion.version_spans``). Without it,
        weights wait for what is being answered.

        Args:
            snapshot: the weights.
            in_flight: of the replies under way: ``finish``: they end first, as with
                ``load_weights``; ``abort``: they begin anew with the new weights; ``keep``: they
                go on with the new weights after the tokens that they have.
        """
        self.load_weights(snapshot)

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        """Queue a text; the future gives a log-probability for each token but the first.

        They are natural ones under the full softmax at the temperature, given the tokens before.
        Without it, ``model.logprobs`` is refused by name.

        Raises:
            ModelError: a text that cannot be scored; without this method, any.
        """
        raise ModelError(lacks(type(self).__name__, "model.logprobs", "scores"))

    def sleep(self, level: int) -> None:
        """Free the GPU's memory for the trainer once all is answered; refuse requests then.

        Level 1 keeps the weights in CPU memory; 2, which a run uses, drops them: others are loaded
        before it answers. Without it, a run with ``enable_sleep_mode`` is refused.
        """
        raise ModelError(lacks(type(self).__name__, "enable_sleep_mode", "sleep"))

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Take back the memory of ``weights``, of ``kv_cache`` or of both; awake: do nothing."""
        raise ModelError(lacks(type(self).__name__, "enable_sleep_mode", "sleep"))

    def weight_digest(self) -> WeightDigest | None:
        """Return :func:`~trinity.common.ports.trainer.digest_of` the weights as they are now.

        It is asked for between two syncs, while requests are answered. Without it (None), a run's
        audit cannot say that the weights of a sync are those of the trainer.
        """
        return None

    @staticmethod
    def preflight(**arguments: Any) -> list[str]:
        """Return what would keep an engine made with these arguments from running, in sentences.

        It loads nothing heavy: ``trinity config check`` calls it (Any: each argument its own type).
        Without it, that is found at its start.
        """
        del arguments
        return []

    @staticmethod
    def limits(**arguments: Any) -> list[str]:
        """Return what an engine made with these arguments refuses though it runs, in sentences.

        They are notices of ``trinity config check`` and of a run's header; nothing heavy is loaded
        (Any: each argument its own type). Without it, a request finds out.
        """
        del arguments
        return []


def lacks(name: str, what: str, word: str) -> str:
    """Return what is said where an engine is asked for what it cannot do."""
    return (
        f"{what} is asked for, and the rollout engine {name} does not provide {word!r}. "
        f"Leave it out, or use an engine that does: trinity plugins show rollout_engine/NAME "
        f"says what each provides."
    )
