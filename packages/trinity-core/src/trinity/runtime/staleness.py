"""How many off-policy steps the rows of a train step have, and the check that bounds them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.metrics import Metrics
    from trinity.explorer.rollout_buffer import RolloutBuffer

_VERSION = "sample/model_version"
_REMEDY = (
    "If a workflow or an operator brought them with an info['model_version'] of their own, as rows "
    "of another model or of another day have it, leave that out. Otherwise it is a fault of the "
    "runtime: please report it with trinity.log."
)


class Staleness:
    """Tells how old rows are when they are trained, and refuses what the policy rules out.

    What began before this start is left out: other settings may have let it be older.

    Args:
        buffer: of the run, with its policy.
        in_turns: whether rollouts never begin beside a train step.
        is_bound: whether a batch is trained as soon as it is there, oldest first, which nobody
            knows of a strategy or a storage that somebody brought.
    """

    def __init__(self, buffer: RolloutBuffer, *, in_turns: bool, is_bound: bool) -> None:
        policy = buffer.policy
        self._buffer = buffer
        self._policy = policy.in_turns() if in_turns else policy
        self._is_bound = is_bound
        self._is_told = not in_turns and not policy.in_rounds  # else it follows from the settings
        self._most, self._unit = 0, 0  # rows of a rollout step; divisor of a batch and of all steps
        self._num_earlier = 0  # rows that began before the first sync after a restart
        self._last_earlier = 0  # the youngest rollout step of an earlier start
        self._is_going_on = False  # rows of it are left, or weights have not moved since
        self._most_before, self._last_before = 0, 0  # of groups of an earlier start; until a step

    def resumed(self, rollouts: Mapping[str, Any] | None, *, train_steps: int) -> None:
        """Leave out what the buffer holds now: an earlier start began it.

        Args:
            rollouts: the state of the buffer in the checkpoint (Any: json).
            train_steps: how many were done.
        """
        if self._buffer.policy.in_groups and rollouts is not None:
            size, wider = self._buffer.batch, self._buffer.widest_policy
            num_steps = -(-(len(rollouts["slots"]) + wider.window - 1) // size)
            self._most_before = wider.max_off_policy_steps(batch=size, most=1)
            self._last_before = train_steps + num_steps
            return
        self._is_going_on, self._last_earlier = True, self._buffer.begun
        for one in self._buffer.slots.values():
            self.explored(one.left)

    def explored(self, count: int) -> None:
        """Note how many rows a rollout step left."""
        self._most = max(self._most, count)
        self._unit = math.gcd(self._unit or self._buffer.batch, count)
        self._num_earlier += count if self._is_going_on else 0

    def synced(self) -> None:
        """Note that the rollouts have the trainer's weights.

        As long as rows of an earlier start are left, what begins may get older than it could alone.
        """
        if self._is_going_on and not self._buffer.num_rows(last=self._last_earlier):
            self._is_going_on, self._num_earlier = False, self._buffer.num_rows()

    def of_step(self, step: int, sampled: Mapping[str, object], *, num_rows: int) -> Metrics:
        """Return the off-policy steps of the rows of a train step; empty: nobody knows them.

        Args:
            step: the train step, from 1.
            sampled: what the sample strategy says of its batch.
            num_rows: how many rows it has.

        Raises:
            TrinityError: a row has more than the policy allows.
        """
        most = self._bound(step) if self._is_bound else None
        self._num_earlier = max(0, self._num_earlier - num_rows)
        oldest, mean = (sampled.get(f"{_VERSION}/{name}") for name in ("min", "mean"))
        if not isinstance(oldest, float) or not isinstance(mean, float):
            return {}
        if most is not None and step - 1 - oldest > most:
            raise TrinityError(self._too_old(step, oldest, most=most))
        return {"age/max": step - 1 - oldest, "age/mean": step - 1 - mean} if self._is_told else {}

    def _bound(self, step: int) -> int | None:
        """Return the most off-policy steps that a row can have now; None: nobody knows."""
        size = self._buffer.batch
        if self._policy.in_groups:
            before = self._most_before if step <= self._last_before else 0
            return max(self._policy.max_off_policy_steps(batch=size, most=1), before)
        if self._num_earlier:
            return None
        over = size - (self._unit or size)
        return self._policy.max_off_policy_steps(batch=size, most=self._most, most_over=over)

    def _too_old(self, step: int, oldest: float, *, most: int) -> str:
        what, keys = "experiences", "explorer.max_inflight_batches, synchronizer.sync_interval"
        if self._policy.in_groups:
            what, keys = "a group", "explorer.max_inflight_batches, explorer.window"
        if self._policy.in_rounds:
            keys = "synchronizer.sync_interval, synchronizer.sync_offset"
        return (
            f"optimizer step {step} got {what} that weights of version {oldest:.0f} made, "
            f"{step - 1 - oldest:.0f} steps before, and none can be more than {most} old "
            f"({keys}). {_REMEDY}"
        )
