"""How old the weights were that sampled what is trained: told each step, and bound in flight."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trinity.errors import TrinityError
from trinity.explorer.flight import FlightPlan
from trinity.runtime.pace import is_in_flight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config
    from trinity.common.metrics import Metrics

__all__ = ["Ages"]

_VERSION = "sample/model_version"


class Ages:
    """The ages of groups in flight; of other styles, nothing.

    Args:
        config: a resolved configuration.
    """

    def __init__(self, config: Config) -> None:
        self._most = FlightPlan.of(config).most_age if is_in_flight(config) else None
        self._last_end: float | None = None  # of an optimizer step

    def of_step(self, step: int, sampled: Mapping[str, object], *, train_s: float) -> Metrics:
        """Return the ages in an optimizer step, and the share of the time before that was idle.

        Args:
            step: the optimizer step, from 1; it ended now.
            sampled: what the sample strategy says of its batch.
            train_s: how long the step took.

        Raises:
            TrinityError: a group is older than it can be.
        """
        if self._most is None:
            return {}
        now = time.monotonic()
        since, self._last_end = self._last_end, now
        idle = {} if since is None else {"idle/trainer": max(0.0, 1.0 - train_s / (now - since))}
        oldest, mean = (sampled.get(f"{_VERSION}/{name}") for name in ("min", "mean"))
        if not isinstance(oldest, float) or not isinstance(mean, float):
            return idle  # of no model: nobody knows
        if step - 1 - oldest > self._most:
            raise TrinityError(
                f"optimizer step {step} got a group that weights of version {oldest:.0f} made, "
                f"{step - 1 - oldest:.0f} steps before, and none can be more than {self._most} "
                f"old (explorer.max_inflight_batches, explorer.window). This is a fault of the "
                f"runtime: please report it with trinity.log. To go on, set sync_style fixed."
            )
        return {**idle, "age/max": step - 1 - oldest, "age/mean": step - 1 - mean}
