"""The built-in sample strategies, with what is said and checked of each batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.algorithm.sample_strategy.base import SampleStrategy
from trinity.common.experience import Experience
from trinity.common.metrics import aggregate
from trinity.errors import PluginError
from trinity.extend.manager import owner_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trinity.common.metrics import Metrics


class DefaultSampleStrategy(SampleStrategy):
    """Reads what comes next."""

    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the next batch and the weight versions that sampled it."""
        experiences = self.source.read(self.train_batch_size, timeout_s=self.read_timeout_s)
        return experiences, version_metrics(experiences)


def version_metrics(experiences: Sequence[Experience]) -> Metrics:
    """Return the spread of the versions, and of how far they moved within an experience."""
    numbers = [
        {
            "model_version": exp.info["model_version"],
            "model_version_drift": exp.info.get("model_version_drift") or 0,
        }
        for exp in experiences
        if exp.info.get("model_version") is not None
    ]
    return aggregate(numbers, prefix="sample")


class StalenessControlSampleStrategy(SampleStrategy):
    """Reads what comes next and drops what weights of more than so many steps ago sampled.

    Step s trains the weights of version s - 1, so a row is dropped where its version is below
    ``s - max_staleness - 1``.

    Args:
        max_staleness: how many optimizer steps the weights may lag behind, 0 or above.

    Raises:
        ValueError: ``max_staleness`` is negative.
    """

    def __init__(self, *, max_staleness: float = math.inf) -> None:
        if not max_staleness >= 0:
            raise ValueError(f"max_staleness is {max_staleness}; it must be 0 or above")
        self.max_staleness = max_staleness

    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the next batch and the weight versions that sampled it."""
        experiences = self.source.read(
            self.train_batch_size,
            timeout_s=self.read_timeout_s,
            min_model_version=math.ceil(self.oldest_version(step)),
        )
        return experiences, version_metrics(experiences)

    def oldest_version(self, step: int) -> float:
        """Return the lowest version that a step may train on, 0 or above."""
        return max(step - self.max_staleness - 1, 0)


class CheckedStrategy:
    """Passes on what the strategy gives, once each.

    Args:
        strategy: bound to its buffers.
        read_for: is told for which optimizer step these are read.
        sampled: is told what the strategy gives, and how to ask for its state.
    """

    def __init__(
        self,
        strategy: SampleStrategy,
        *,
        read_for: Callable[[int], None] | None = None,
        sampled: Callable[[list[Experience], Metrics, Callable[[], Any]], None] | None = None,
    ) -> None:
        self._strategy = strategy
        self._read_for, self._sampled = read_for, sampled

    def sample(self, step: int) -> tuple[list[Experience], Metrics]:
        """Return the batch of a step, and metrics.

        Raises:
            PluginError: it is no batch, or an experience stands there twice.
            StopIteration: there is nothing left.
            TimeoutError: the buffer did not fill in time.
        """
        if self._read_for is not None:
            self._read_for(step)
        returned: object = self._strategy.sample(step)
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
            rows = self._each_once(returned[0], step=step)
            if self._sampled is not None:
                self._sampled(rows, returned[1], self._strategy.state_dict)
            return rows, returned[1]
        given = "None" if returned is None else f"a {type(returned).__name__}"
        raise self._wrong(given, "Return two things: a list of experiences, and metrics.")

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give the buffers back what was sampled last and not used."""
        self._strategy.put_back(experiences)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return self._strategy.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._strategy.load_state_dict(state)

    def _each_once(self, batch: Iterable[object], *, step: int) -> list[Experience]:
        seen: set[int] = set()
        rows: list[Experience] = []
        for row in batch:
            if not isinstance(row, Experience):
                raise self._wrong(f"a {type(row).__name__}", "Return experiences alone.")
            if id(row) in seen:
                what = f"the experience {row.eid} twice in the batch of step {step}"
                raise self._wrong(what, "Return each once: the second would weigh it double.")
            seen.add(id(row))
            rows.append(row)
        return rows

    def _wrong(self, what: str, remedy: str) -> PluginError:
        return PluginError(
            f"sample strategy {owner_label(self._strategy)} returned {what}. {remedy}"
        )
