"""What the loop calls, whether a worker stands in this process or in another.

A *batch* is what the strategy hands to the trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from trinity.common.ports import Stateful

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.metrics import Metrics
    from trinity.common.ports import WeightSnapshot
    from trinity.common.ports.trainer import WeightDigest
    from trinity.explorer.explorer import ExploreResult
    from trinity.explorer.groups import FailedAttempts


class Closable(Protocol):
    """Holds something."""

    def close(self) -> None:
        """Free what it holds; safe to call twice."""


class ExplorerRole(Closable, Protocol):
    """Explores, one step at a time."""

    @property
    def failed_attempts(self) -> FailedAttempts:
        """Return how many attempts at rollouts failed, and the first of them."""

    def explore_step(self, step: int) -> ExploreResult:
        """Run the tasks of a step and hand on what they give."""

    def evaluate(self, step: int) -> Metrics:
        """Run all evaluation tasks."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the tasks stand."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


class GroupsRole(Protocol):
    """Begins groups one by one, while there are slots."""

    @property
    def is_out(self) -> bool:
        """Return whether no group runs, and none will begin."""

    def admit(self, *, for_step: int) -> None:
        """Let groups begin; the batch of an explore step is waited for."""

    def take(self, step: int) -> ExploreResult:
        """Consume the next batch and let the strategy read it."""

    def put_back(self) -> None:
        """Make the batch that was consumed last ready again: it was not trained."""

    def check(self) -> None:
        """Raise what ended the groups."""

    def tell_the_rest(self) -> None:
        """Say what no step's metrics tell."""


class BatchSource(Stateful, Protocol):
    """Chooses the next batch."""

    def sample(self, step: int) -> tuple[Any, Metrics]:
        """Return the batch of a step and metrics."""

    def put_back(self, experiences: Any) -> None:
        """Give the buffers back the batch that was sampled last and not used."""


class WritingRole(Protocol):
    """Takes experiences from the explorer to the storage."""

    def is_over(self, *, timeout_s: float) -> bool:
        """Return whether nothing is written any more, once the explorer was closed."""


class ReadySource(Protocol):
    """Lets the strategy read what is ready, and no more."""

    last: float  # the youngest rollout step that may be consumed

    def available(self) -> int:
        """Return how many experiences are ready and there."""

    def reconcile(self) -> None:
        """Forget what was ready and is not there any more."""


class EngineWeights(Protocol):
    """Has the weights that engines in other processes have."""

    def save(self, checkpoint: Path) -> None:
        """Write them into a checkpoint's folder."""

    def load(self, snapshot: WeightSnapshot) -> None:
        """Let all engines load these."""

    def digests(self, version: int) -> dict[str, WeightDigest | None]:
        """Return the digests of the weights of this version, by engine; None: one cannot."""
