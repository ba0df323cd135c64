"""Where rooms meet: the protocols, with as few methods as their callers call.

explorer --ExperienceSink--> buffer --ExperienceSource--> trainer --WeightSource--> synchronizer
^                                                                                    |
+-- RolloutEngine <---------------------- load_weights(WeightSnapshot) --------------+
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NewType, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from torch import Tensor

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.workflows.task import Task

__all__ = [
    "Completion",
    "EvaluationSet",
    "ExperienceProcessor",
    "ExperienceSink",
    "ExperienceSource",
    "GenerationRequest",
    "Monitor",
    "RolloutEngine",
    "RunKey",
    "Stateful",
    "TaskReader",
    "WeightSnapshot",
    "WeightVersion",
]

WeightVersion = NewType("WeightVersion", int)  # counts optimizer steps; 0 is the base model


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class RunKey:
    """Which request this is: orders requests of a step and seeds their randomness.

    ``batch`` is the explore step (an evaluation uses ``"eval/<step>/<taskset>"``), ``attempt``
    counts retries after an error, from 1.
    """

    batch: str = "0"
    task: int = 0
    run: int = 0
    request: int = 0
    attempt: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One prompt to be continued ``n`` times. The prompt is prefilled once."""

    prompt_token_ids: tuple[int, ...]
    key: RunKey = field(default_factory=RunKey)
    n: int = 1
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = -1  # -1: no limit
    max_new_tokens: int = 16
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled continuation.

    ``logprobs`` are natural log-probabilities of the sampled tokens under the full softmax at the
    sampling temperature, before top-k and top-p (at temperature 0: at temperature 1).
    """

    token_ids: tuple[int, ...]  # the EOS token, if the model ended by one, is the last
    logprobs: tuple[float, ...]
    finish_reason: str  # "stop": ended by EOS; "length": max_new_tokens or the context is used up
    weight_version: WeightVersion


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSnapshot:
    """The weights after ``version`` optimizer steps, by parameter name."""

    version: WeightVersion
    tensors: Mapping[str, Tensor]


class RolloutEngine(Protocol):
    """Samples continuations; thread-safe."""

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request; the future gives ``n`` completions or a ``ModelError``."""

    def run_began(self) -> None:
        """Note that one more run may send requests: a batch waits for it (determinism contract)."""

    def run_ended(self) -> None:
        """Note that a run that began sends nothing more."""

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights in place, between two batches."""

    def close(self) -> None:
        """Free what the engine holds; waiting requests fail with ``ModelError``."""


class TaskReader(Protocol):
    """Gives the training tasks, in order."""

    def read(self, count: int) -> list[Task]:
        """Return the next tasks, fewer only at the end of the last epoch.

        Raises:
            StopIteration: all epochs are over.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position."""


class EvaluationSet(Protocol):
    """Gives the tasks of one evaluation, each to be run ``repeat_times`` times."""

    @property
    def name(self) -> str:
        """Return the name in metrics."""

    @property
    def repeat_times(self) -> int:
        """Return k of ``mean@k``."""

    def tasks(self) -> list[Task]:
        """Return all tasks, in order."""


class ExperienceProcessor(Protocol):
    """Takes the experiences of an explore step on their way to the buffer."""

    def process(self, exps: list[Experience]) -> Metrics:
        """Write what is to be trained on; return metrics."""

    def close(self) -> None:
        """Free what it holds."""


class ExperienceSink(Protocol):
    """Takes experiences from the explorer."""

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store the experiences; waits while the buffer is full.

        Raises:
            BufferClosedError: the buffer was closed.
        """

    def close(self) -> None:
        """Say that nothing more comes; what is stored can still be read."""


class ExperienceSource(Protocol):
    """Gives experiences to a sample strategy."""

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return ``count`` experiences, fewer only when the writers closed.

        Raises:
            TimeoutError: fewer than ``count`` were there in time; none of them is lost.
            StopIteration: the writers closed and nothing is left.
        """

    def available(self) -> int:
        """Return how many experiences can be read without waiting."""


class Stateful(Protocol):
    """Has a state that a checkpoint holds."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as json can hold it (Any: each part's own)."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""


class Monitor(Protocol):
    """Receives the metrics of each step."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Record the metrics of one step."""

    def close(self) -> None:
        """Write out what is held."""
