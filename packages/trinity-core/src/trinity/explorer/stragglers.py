"""Which groups are not waited for: those that take much longer than others.

Decisions alone; who asks leaves the runs behind that have not ended.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trinity.explorer.rollout_buffer import UnitState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trinity.common.config import ExplorerConfig
    from trinity.explorer.rollout_buffer import RolloutBuffer


class SlowGroups:
    """Follows how long groups take, and since when most of a batch is there.

    Args:
        config: ``explorer``, whose ``over_rollout`` and ``dynamic_timeout`` say when to go on.
        batch_size: groups of a batch.
    """

    def __init__(self, config: ExplorerConfig, *, batch_size: int) -> None:
        self._over, self._timeout = config.over_rollout, config.dynamic_timeout
        self._batch_size = batch_size
        self._num_enough = math.ceil(batch_size * (1.0 - self._over.ratio))
        self._enough_since: float | None = None  # None: too few wait
        self._num_ended, self._sum_s, self._num_steps = 0, 0.0, 0
        self._untimed: set[int] = set()

    @property
    def keeps_parts(self) -> bool:
        """Return whether the ended runs of a group that was cut are kept, if two or more."""
        return self._over.return_partial_tasks

    def ended(self, seconds: float, *, number: int | None = None) -> None:
        """Note how long a group took that was not cut, but for one that was paused."""
        if number in self._untimed:
            return
        self._num_ended, self._sum_s = self._num_ended + 1, self._sum_s + seconds

    def paused(self, numbers: Iterable[int]) -> None:
        """Note that others had the slots of these groups: their times tell nothing of groups."""
        self._enough_since = None
        self._untimed = set(numbers)

    def moved(self) -> None:
        """Note that groups began again elsewhere: a batch waits for them anew."""
        self._enough_since = None

    def stepped(self) -> None:
        """Note that a batch was taken."""
        self._num_steps, self._enough_since = self._num_steps + 1, None

    def late(self, buffer: RolloutBuffer, *, began: Mapping[int, float], now: float) -> list[int]:
        """Return the groups that run and are not to be waited for.

        Args:
            buffer: all groups.
            began: when each that runs began.
            now: by the same clock, in seconds.
        """
        return sorted({*self._beyond_limit(began, now), *self._beyond_batch(buffer, now)})

    def _beyond_limit(self, began: Mapping[int, float], now: float) -> list[int]:
        warm_up = self._timeout.warmup_min_steps
        if not self._timeout.enable or self._num_steps < warm_up or not self._num_ended:
            return []
        limit_s = self._timeout.ratio * self._sum_s / self._num_ended
        return [number for number, since in began.items() if now - since > limit_s]

    def _beyond_batch(self, buffer: RolloutBuffer, now: float) -> list[int]:
        """Return what runs of the oldest batch, once enough of it has waited long enough."""
        if not self._over.ratio:
            return []
        held = [one for one in buffer.slots.values() if one.state is not UnitState.CONSUMED]
        oldest = held[: self._batch_size]
        if sum(one.state is UnitState.READY for one in oldest) < self._num_enough:
            self._enough_since = None
            return []
        self._enough_since = now if self._enough_since is None else self._enough_since
        if now - self._enough_since < self._over.wait_after_min:
            return []
        return [one.number for one in oldest if one.state is UnitState.RUNNING]
