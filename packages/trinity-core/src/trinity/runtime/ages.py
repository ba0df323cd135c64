"""How old the weights were that sampled what is trained: told where both sides go on by themselves.

It is checked too: nothing can be older than the plan of a flight, or the lead, lets it be.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trinity.errors import TrinityError
from trinity.explorer.flight import FlightPlan
from trinity.runtime.lead import Left
from trinity.runtime.pace import is_in_flight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.metrics import Metrics
    from trinity.runtime.lead import Lead

__all__ = ["Ages"]

_VERSION = "sample/model_version"
_REMEDY = (
    "If a workflow or an operator brought them with an info['model_version'] of their own, as rows "
    "of another model or of another day have it, leave that out. Otherwise it is a fault of the "
    "runtime: please report it with trinity.log. To go on, set sync_style fixed."
)


class Ages:
    """The ages of what is trained, where they follow the clock; else nothing.

    Args:
        config: a resolved configuration.
        batch_size: how many experiences an optimizer step reads from the buffer.
        lead: of an explorer that begins its steps by itself; None: it does not.
        is_whole: whether a whole batch is trained as soon as it is there, which no lead can know
            of a strategy that somebody brought.
    """

    def __init__(
        self,
        config: Config,
        *,
        batch_size: int = 1,
        lead: Lead | None = None,
        is_whole: bool = True,
    ) -> None:
        self._plan = FlightPlan.of(config) if is_in_flight(config) else None
        self._most_before, self._last_before = 0, 0  # of groups of an earlier start; until a step
        self._lead, self._is_whole = lead, is_whole
        self._left = Left(batch=batch_size)
        self._num_earlier = 0  # experiences that began before the first sync after a restart
        self._is_going_on = False  # it was restarted, and has not synced
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

    def begin_with(self, waiting: Sequence[int]) -> None:
        """Check nothing of explore steps before the first sync: other settings may have let them.

        Args:
            waiting: how many experiences each step left that are not trained.
        """
        self._is_going_on = True
        for count in waiting:
            self.explored(count)

    def explored(self, count: int) -> None:
        """Note how many experiences an explore step left."""
        self._left = self._left.after(count)
        self._num_earlier += count if self._is_going_on else 0

    def synced(self) -> None:
        """Note that the engines have the trainer's weights."""
        self._is_going_on = False

    def of_step(
        self, step: int, sampled: Mapping[str, object], *, train_s: float, num_rows: int = 0
    ) -> Metrics:
        """Return the ages in an optimizer step, and the share of the time before that was idle.

        Args:
            step: the optimizer step, from 1; it ended now.
            sampled: what the sample strategy says of its batch.
            train_s: how long the step took.
            num_rows: how many experiences it trained.

        Raises:
            TrinityError: one is older than it can be.
        """
        if self._plan is None and self._lead is None:
            return {}
        now = time.monotonic()
        since, self._last_end = self._last_end, now
        idle = {} if since is None else {"idle/trainer": max(0.0, 1.0 - train_s / (now - since))}
        most = self._most(step)
        self._num_earlier = max(0, self._num_earlier - num_rows)
        oldest, mean = (sampled.get(f"{_VERSION}/{name}") for name in ("min", "mean"))
        if not isinstance(oldest, float) or not isinstance(mean, float):
            return idle  # of no model: nobody knows
        if most is not None and step - 1 - oldest > most:
            raise TrinityError(self._too_old(step, oldest, most=most))
        return {**idle, "age/max": step - 1 - oldest, "age/mean": step - 1 - mean}

    def _most(self, step: int) -> int | None:
        """Return how old the next batch can be; None: nobody knows."""
        if self._plan is not None:
            before = self._most_before if step <= self._last_before else 0
            return max(self._plan.most_age, before)
        if self._lead is None or self._num_earlier or not self._is_whole:
            return None
        return self._lead.most_age(self._left)

    def _too_old(self, step: int, oldest: float, *, most: int) -> str:
        what, keys = "a group", "explorer.max_inflight_batches, explorer.window"
        if self._plan is None:
            what, keys = "experiences", "explorer.max_inflight_batches, synchronizer.sync_interval"
        return (
            f"optimizer step {step} got {what} that weights of version {oldest:.0f} made, "
            f"{step - 1 - oldest:.0f} steps before, and none can be more than {most} old ({keys}). "
            f"{_REMEDY}"
        )
