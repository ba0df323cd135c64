"""Rollout units between their admission and the moment at which their slot is free again.

    begin --> RUNNING --finish--> READY --consume--> CONSUMED --weights synced--> (slot is free)
                 |                  oldest first; groups also from a window behind the oldest
                 +-- left nothing: a group's slot is free at once

A unit is a rollout step, or one group where the policy consumes groups. Here is who may begin and
what may be consumed; the rows themselves lie in the storage. When a group begins, at most
``max_active - 1`` others hold a slot and at most ``window - 1`` younger ones are consumed before
it: this bounds how many off-policy steps it can have (``SyncPolicy.max_off_policy_steps``).
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from trinity.common.sync_policy import Frees

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import EID
    from trinity.common.sync_policy import SyncPolicy

ALL = math.inf


class UnitState(Enum):
    """Where a rollout unit is."""

    RUNNING = "running"
    READY = "ready"
    CONSUMED = "consumed"


@dataclass
class RolloutUnit:
    """A rollout step or a group, while it holds a slot."""

    number: int
    version: int  # policy version that it began with
    state: UnitState = UnitState.RUNNING
    left: int = 0  # rows that were not consumed
    task: dict[str, int] = field(default_factory=dict)  # of a group: where it is in the tasksets


class RolloutBuffer:
    """Slots, the window and the count of rows.

    Any number of threads may call it. Who changes something holds :attr:`changed`, and so does who
    looks and acts by what was seen; the counts take it themselves.

    Args:
        policy: of the run.
        batch: rows of a train step; groups where the policy consumes groups.
        gives_again: whether the storage fills a short batch up with rows that it gave before.

    >>> from trinity.common.sync_policy import Consume, SyncPolicy
    >>> policy = SyncPolicy(style="", consume=Consume.GROUPS, max_active=4, window=2)
    >>> buffer = RolloutBuffer(policy, batch=2)
    >>> while buffer.has_slot:
    ...     _ = buffer.begin()
    >>> for number in (1, 2, 3):
    ...     buffer.finish(number, 1)
    >>> buffer.ready_groups()  # 2 is too young as long as 0 was not consumed
    [1]
    >>> buffer.finish(0, 1)
    >>> buffer.consume_groups()
    [0, 1]
    >>> buffer.has_slot
    False
    >>> buffer.weights_synced(version=1)
    >>> buffer.has_slot
    True
    """

    def __init__(self, policy: SyncPolicy, *, batch: int, gives_again: bool = False) -> None:
        self.policy, self.batch = policy, batch
        self.changed = threading.Condition()  # guards all below; notified when a unit ends
        self.num_changes = 0  # so that nobody waits for what has happened
        self.begun = -1 if policy.in_groups else 0  # the youngest number
        self.version = 0  # policy version that units begin with now
        self.num_consumed = 0  # groups, in the whole run
        self.slots: dict[int, RolloutUnit] = {}  # by number, oldest first
        # Of these, so that nothing done for one group looks at all: there may be thousands.
        self._running: dict[int, RolloutUnit] = {}  # oldest first
        self._ready: list[int] = []  # sorted
        self._fills = gives_again
        self._last_taken: list[tuple[int, int]] = []  # numbers and rows of the last batch
        self._earlier: SyncPolicy | None = None  # wider, of units below the next number
        self._first_of_now = 0

    # --- who may begin ------------------------------------------------------------------------

    @property
    def has_slot(self) -> bool:
        return len(self.slots) < self.policy.max_active

    @property
    def running(self) -> dict[int, RolloutUnit]:
        with self.changed:  # a rollout may begin meanwhile
            return dict(self._running)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_ready(self) -> int:
        return len(self._ready)

    @property
    def num_wanted(self) -> int:
        """Return how many groups were begun and not dropped in the whole run."""
        return self.num_consumed + len(self._running) + len(self._ready)

    def begin(self, *, task: Mapping[str, int] | None = None) -> RolloutUnit:
        """Admit the next unit, with the weights of now."""
        self.begun += 1
        one = RolloutUnit(self.begun, self.version, task=dict(task or {}))
        self.slots[self.begun] = self._running[self.begun] = one
        return one

    def cancel(self, number: int) -> None:
        """Take back the youngest unit: it had no tasks."""
        self._free(number)
        self.begun = number - 1

    def finish(self, number: int, count: int) -> None:
        """Note how many rows a unit left; a group that left none is dropped."""
        self._move(self.slots[number], UnitState.READY, left=count)
        if not count and self.policy.in_groups:
            self._free(number)
        self._free_consumed_steps()
        self.notify()

    def notify(self) -> None:
        with self.changed:
            self.num_changes += 1
            self.changed.notify_all()

    # --- what may be consumed -----------------------------------------------------------------

    def num_rows(self, *, last: float = ALL) -> int:
        """Return how many rows are ready, of units up to number ``last``."""
        with self.changed:  # a rollout may begin meanwhile
            return sum(one.left for number, one in self.slots.items() if number <= last)

    def available(self, *, there: int, last: float = ALL) -> int:
        """Return how many rows of steps up to ``last`` a train step may read.

        Args:
            there: how many rows the storage can give.
            last: the youngest rollout step that may be consumed.
        """
        rows = self.num_rows(last=last)
        filled = -(-rows // self.batch) * self.batch if self._fills else rows
        return min(filled, there)

    def batch_trained(self) -> None:
        """Note that what was consumed last is trained: it is not put back any more."""
        self._last_taken = []

    def consume_rows(self, count: int, *, last: float = ALL) -> None:
        """Note that a train step has read so many rows, the oldest ones."""
        self._last_taken += self._take(count, last=last)
        self._free_consumed_steps()

    def drop_rows(self, count: int) -> None:
        """Forget rows that the storage gave up, the oldest ones."""
        self._take(count)
        self._free_consumed_steps()

    def ready_groups(self) -> list[int]:
        """Return the groups of the next batch as far as they are there, the oldest in the window.

        A younger group that is consumed does not move the window: it begins at the oldest one left.
        """
        # Beside an older group that is ready itself, any is in the window: those that run count.
        oldest = next(iter(self._running), None)
        last = ALL if oldest is None else oldest + self.policy.window - 1
        return self._ready[: min(self.batch, bisect_right(self._ready, last))]

    def consume_groups(self) -> list[int]:
        """Return the groups of the next batch; they are consumed."""
        numbers = self.ready_groups()
        self._last_taken = [(number, self.slots[number].left) for number in numbers]
        for number in numbers:
            self._move(self.slots[number], UnitState.CONSUMED, left=0)
        self.num_consumed += len(numbers)
        return numbers

    def put_back(self, count: int) -> None:
        """Make rows ready again that were consumed last and not trained: so many of them.

        Of groups all, whatever the count.
        """
        if self.policy.in_groups:
            self.num_consumed -= len(self._last_taken)
        while self._last_taken and (count or self.policy.in_groups):
            number, taken = self._last_taken.pop()
            again = taken if self.policy.in_groups else min(taken, count)
            gone = RolloutUnit(number, self.version, UnitState.CONSUMED)
            one, count = self.slots.setdefault(number, gone), count - again
            self._move(one, UnitState.READY, left=one.left + again)
            if again < taken:
                self._last_taken.append((number, taken - again))
        self.slots = dict(sorted(self.slots.items()))

    def weights_synced(self, *, version: int, last: float = ALL, frees: bool = True) -> None:
        """Note the weights of rollouts; free the slots of consumed units up to number ``last``."""
        self.version = version
        if frees and self.policy.frees is Frees.WEIGHT_SYNC:
            for number in [n for n, one in self.slots.items() if n <= last and self._is_over(one)]:
                self._free(number)

    # --- what is told of it -------------------------------------------------------------------

    def num_overtaken(self, numbers: Sequence[int]) -> int:
        """Return how many groups still run that are older than the youngest of these."""
        youngest = max(numbers, default=0)
        return sum(number < youngest for number in self.running)

    def off_policy_steps(self, train_steps: int) -> int:
        """Return the train steps that the oldest unit not consumed has not seen."""
        held = (one for one in self.slots.values() if one.state is not UnitState.CONSUMED)
        return max((train_steps - one.version for one in held), default=0)

    @property
    def widest_policy(self) -> SyncPolicy:
        """Return the policy; a wider one as long as there are units that began under that."""
        if self._earlier is None or min(self.slots, default=ALL) >= self._first_of_now:
            return self.policy
        return self._earlier

    # --- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds (Any: json)."""
        widest = self.widest_policy
        rows = [
            [one.number, one.state.value, one.version, one.left, one.task]
            for one in self.slots.values()
        ]
        return {
            "consume": self.policy.consume.value,
            "batch": self.batch,
            "max_active": widest.max_active,
            "window": widest.window,
            "begun": self.begun,
            "num_consumed": self.num_consumed,
            "slots": rows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there: steps that ran are made again, groups begin again, READY stays."""
        self.begun, self.num_consumed = state["begun"], state["num_consumed"]
        rows = [[number, UnitState(name), *rest] for number, name, *rest in state["slots"]]
        units = [
            RolloutUnit(number, version, name, left, dict(task))
            for number, name, version, left, task in rows
        ]
        self._hold(units)
        if self.policy.in_groups:
            self._first_of_now = self.begun + 1
            self._earlier = replace(
                self.policy,
                max_active=max(self.policy.max_active, state["max_active"]),
                window=max(self.policy.window, state["window"]),
            )
            return
        self.begun -= self.num_running
        self._hold([one for one in units if one.number <= self.begun])
        self._free_consumed_steps()

    # --- within -------------------------------------------------------------------------------

    def _hold(self, units: Sequence[RolloutUnit]) -> None:
        """Let these be all there are."""
        self.slots = {one.number: one for one in units}
        self._running = {n: one for n, one in self.slots.items() if one.state is UnitState.RUNNING}
        self._ready = sorted(n for n, one in self.slots.items() if one.state is UnitState.READY)

    def _move(self, one: RolloutUnit, state: UnitState, *, left: int) -> None:
        self._forget(one)
        if state is UnitState.READY:
            insort(self._ready, one.number)
        one.state, one.left = state, left

    def _free(self, number: int) -> None:
        self._forget(self.slots.pop(number))

    def _forget(self, one: RolloutUnit) -> None:
        self._running.pop(one.number, None)
        if one.state is UnitState.READY:
            del self._ready[bisect_left(self._ready, one.number)]

    def _take(self, count: int, *, last: float = ALL) -> list[tuple[int, int]]:
        """Count rows as consumed, the oldest first; return how many of which step."""
        taken: list[tuple[int, int]] = []
        for one in self.slots.values():
            own = min(one.left, count) if one.number <= last else 0
            if own:
                one.left, count = one.left - own, count - own
                taken.append((one.number, own))
        return taken

    def _is_over(self, one: RolloutUnit) -> bool:
        if self.policy.in_groups:
            return one.state is UnitState.CONSUMED
        return one.state is UnitState.READY and not one.left

    def _free_consumed_steps(self) -> None:
        """Free the oldest slots whose rows are all consumed, where no sync has to come first."""
        while self.policy.frees is Frees.TRAIN_STEP and self.slots:
            oldest = next(iter(self.slots.values()))
            if not self._is_over(oldest):
                return
            self._free(oldest.number)


def name_of_group(number: int, *, batch_size: int) -> tuple[str, int]:
    """Return batch and task of a group's experiences; ``batch/task`` is its name everywhere.

    >>> name_of_group(9, batch_size=8)
    ('2', 1)
    """
    batch, task = divmod(number, batch_size)
    return str(batch + 1), task


def group_of(eid: EID) -> str:
    """Return the name of the group that was begun for an experience, ``batch/task``.

    A workflow may name groups below a task, with a dash: they are part of the task's group.

    >>> from trinity.common.experience import EID
    >>> [group_of(EID(batch=2, task=task)) for task in (1, "1-verdicts")]
    ['2/1', '2/1']
    """
    return f"{eid.batch}/{str(eid.task).partition('-')[0]}"


def names_of_ended(rollouts: Mapping[str, Any]) -> list[str]:
    """Return the names of the groups that had ended, in a state of ``RolloutBuffer`` (Any: json).

    >>> slots = [[0, "consumed", 0, 0, {}], [1, "running", 0, 0, {}], [9, "ready", 0, 4, {}]]
    >>> names_of_ended({"batch": 8, "slots": slots})
    ['1/0', '2/1']
    """
    ended = [number for number, state, *_ in rollouts["slots"] if state != "running"]
    named = (name_of_group(number, batch_size=rollouts["batch"]) for number in ended)
    return [f"{batch}/{task}" for batch, task in named]


def has_ended(eid: EID, rollouts: Mapping[str, Any]) -> bool:
    """Return whether an experience is of a group that had ended (Any: as above).

    >>> from trinity.common.experience import EID
    >>> slots = [[8, "running", 0, 0, {}], [9, "ready", 0, 4, {}]]
    >>> state = {"batch": 8, "begun": 9, "slots": slots}
    >>> [has_ended(EID(batch=2, task=n), state) for n in (0, 1, 2)]
    [False, True, False]
    """
    batch, task = map(int, group_of(eid).split("/"))
    number = (batch - 1) * int(rollouts["batch"]) + task
    running = {n for n, state, *_ in rollouts["slots"] if state == "running"}
    return number <= rollouts["begun"] and number not in running
