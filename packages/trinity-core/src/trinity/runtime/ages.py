"""How old the weights were that sampled what is trained: told where both sides go on by themselves.

Of groups in flight it is checked too: none can be older than the plan of the flight lets it be.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

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
    """The ages of what is trained, where they follow the clock; else nothing.

    Args:
        config: a resolved configuration.
        has_lead: whether the explorer begins its steps by itself.
    """

    def __init__(self, config: Config, *, has_lead: bool = False) -> None:
        self._has_lead = has_lead
        self._plan = FlightPlan.of(config) if is_in_flight(config) else None
        self._most = self._plan.most_age if self._plan is not None else None
        self._most_before, self._last_before = 0, 0  # of groups of an earlier start; until a step
        self._last_end: float | None = None  # of an optimizer step

    def go_on(self, flight: Mapping[str, Any], *, trained: int) -> None:
        """Let groups that began before this start be as old as the settings of then let them be.

        Args:
            flight: the state of :class:`~trinity.explorer.flight.Flight` (Any: json).
            trained: how many optimizer steps were done.
        """
        if self._plan is None:
            return
        wider = self._plan.or_wider(FlightPlan.before(flight))
        num_groups = sum(len(flight[name]) for name in ("running", "waiting", "taken"))
        num_steps = -(-(num_groups + wider.window - 1) // wider.batch_size)
        self._most_before, self._last_before = wider.most_age, trained + num_steps

    def of_step(self, step: int, sampled: Mapping[str, object], *, train_s: float) -> Metrics:
        """Return the ages in an optimizer step, and the share of the time before that was idle.

        Args:
            step: the optimizer step, from 1; it ended now.
            sampled: what the sample strategy says of its batch.
            train_s: how long the step took.

        Raises:
            TrinityError: a group is older than it can be.
        """
        if self._most is None and not self._has_lead:
            return {}
        now = time.monotonic()
        since, self._last_end = self._last_end, now
        idle = {} if since is None else {"idle/trainer": max(0.0, 1.0 - train_s / (now - since))}
        oldest, mean = (sampled.get(f"{_VERSION}/{name}") for name in ("min", "mean"))
        if not isinstance(oldest, float) or not isinstance(mean, float):
            return idle  # of no model: nobody knows
        self._check(step, oldest)
        return {**idle, "age/max": step - 1 - oldest, "age/mean": step - 1 - mean}

    def _check(self, step: int, oldest: float) -> None:
        if self._most is None:
            return
        most = self._most if step > self._last_before else max(self._most, self._most_before)
        if step - 1 - oldest > most:
            raise TrinityError(
                f"optimizer step {step} got a group that weights of version {oldest:.0f} made, "
                f"{step - 1 - oldest:.0f} steps before, and none can be more than {most} "
                f"old (explorer.max_inflight_batches, explorer.window). This is a fault of the "
                f"runtime: please report it with trinity.log. To go on, set sync_style fixed."
            )
