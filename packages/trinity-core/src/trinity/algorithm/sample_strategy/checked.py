"""A sample strategy whose batches are checked before somebody trains on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience
from trinity.errors import PluginError
from trinity.extend.manager import owner_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trinity.algorithm.sample_strategy.base import SampleStrategy
    from trinity.common.metrics import Metrics

__all__ = ["CheckedStrategy"]


class CheckedStrategy:
    """Passes on what the strategy gives, once each.

    Args:
        strategy: bound to its buffers.
        read_for: is told for which optimizer step these are read.
    """

    def __init__(
        self, strategy: SampleStrategy, *, read_for: Callable[[int], None] | None = None
    ) -> None:
        self._strategy = strategy
        self._read_for = read_for

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
            return self._each_once(returned[0], step=step), returned[1]
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
