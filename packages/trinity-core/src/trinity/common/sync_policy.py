"""When weights move, how far rollouts run ahead and what a train step consumes: as data.

    style           | consume | max_active   | window        | publish_every | pull_every | frees at
    fixed           | ROUNDS  | i + o steps  | 1             | a round       | i          | sync
    explorer_driven | ROWS    | L steps      | 1             | 1             | i          | train
    trainer_driven  | ROWS    | L steps      | 1             | i             | none       | train
    fully_async     | GROUPS  | L * B groups | max(1, f*L*B) | i             | none       | sync
    standalone runs | ROWS    | L steps      | 1             | i of trainer  | i          | sync

i is the sync interval, o ``sync_offset``, L ``explorer.max_inflight_batches``, B
``buffer.batch_size``, f ``explorer.window``. This is the only module that reads the style.

A *rollout unit* holds one slot: a rollout step of B groups, or one group with ``Consume.GROUPS``.
The *policy version* is the number of train steps that a set of weights has had. The *off-policy
steps* of a row are the train steps done when it is consumed, less the version that sampled it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = ["Consume", "Frees", "SyncPolicy", "begins_groups", "policy_of"]


class Consume(Enum):
    """What a train step takes from the buffer."""

    ROUNDS = "rounds"  # rows of pull_every rollout steps; the last batch of a round may be short
    ROWS = "rows"  # whole batches of rows, oldest first, across rollout steps
    GROUPS = "groups"  # batch_size whole groups from the window, of any number of rows


class Frees(Enum):
    """When a rollout unit that was consumed gives its slot back."""

    TRAIN_STEP = "train_step"
    WEIGHT_SYNC = "weight_sync"


@dataclass(frozen=True, kw_only=True)
class SyncPolicy:
    """One row of the table of styles.

    Attributes:
        style: its name, for messages; nothing decides by it.
        consume: what a train step takes.
        max_active: rollout units that hold a slot at a time.
        window: how many numbers a group may be younger than the oldest one that was not consumed,
            to be consumed itself; 1: in order.
        publish_every: train steps until rollouts may have newer weights.
        pull_every: rollout steps between two looks for newer weights, at a barrier: none is in
            flight then; None: weights come as soon as they are published, during rollouts too.
            With ROUNDS the steps of a round.
        frees: when a slot is free again.
    """

    style: str
    consume: Consume
    max_active: int
    window: int = 1
    publish_every: int = 1
    pull_every: int | None = None
    frees: Frees = Frees.WEIGHT_SYNC

    @property
    def in_rounds(self) -> bool:
        """Return whether batches end with the round that they are of."""
        return self.consume is Consume.ROUNDS

    @property
    def in_groups(self) -> bool:
        """Return whether groups begin one by one."""
        return self.consume is Consume.GROUPS

    @property
    def pulls_at_barrier(self) -> bool:
        """Return whether newer weights wait until no rollout is in flight."""
        return self.pull_every is not None

    @property
    def offset(self) -> int:
        """Return how many rollout steps run ahead of a round (ROUNDS); else 0."""
        return self.max_active - self._round if self.in_rounds else 0

    @property
    def can_overlap(self) -> bool:
        """Return whether rollouts may begin before all that began earlier is trained."""
        return not self.in_rounds or self.max_active > 1

    @property
    def is_always_newest(self) -> bool:
        """Return whether in turns a rollout always has the weights of all that was trained."""
        if self.in_rounds:
            return self.max_active == 1
        return not self.in_groups and max(self.publish_every, self._round) == 1

    @property
    def is_bitwise(self) -> bool:
        """Return whether the clock decides nothing: numbers follow from the seed alone."""
        return self.in_rounds

    @property
    def in_order(self) -> bool:
        """Return whether batches hold the rows of the same tasks in each run of a seed."""
        return self.window == 1

    def sync_point(self, rounds: int) -> int:
        """Return the rollout step after which round ``rounds``, from 1, is trained and synced.

        What is active beyond a round runs ahead (``sync_offset``):

        >>> [_fixed(interval=2, offset=1).sync_point(n) for n in (1, 2, 3)]
        [3, 5, 7]
        """
        return self.max_active + (rounds - 1) * self._round

    def rounds_before(self, sync_step: int) -> int:
        """Return how many rounds were trained when weights moved after this rollout step.

        >>> [_fixed(interval=2, offset=1).rounds_before(step) for step in (0, 3, 5)]
        [0, 1, 2]
        """
        return max(0, (sync_step - self.max_active) // self._round + 1)

    def sync_before(self, step: int) -> int:
        """Return the sync point before the one that a rollout step is trained for; 0: none.

        >>> [_fixed(interval=2, offset=1).sync_before(step) for step in (1, 2, 3, 4, 5)]
        [0, 0, 3, 3, 5]
        """
        rounds = (step - 1) // self._round
        return self.sync_point(rounds) if rounds > 0 else 0

    def last_step_of_round(self, number: int) -> int:
        """Return the last rollout step of a round, from 1."""
        return number * self._round

    def pull_point(self, step: int) -> int:
        """Return the first rollout step, this or a later one, after which weights are looked for.

        >>> _explorer_driven(interval=3, steps=2).pull_point(4)
        6
        """
        return -(-step // self._round) * self._round

    def is_published(self, *, train_steps: int, version: int) -> bool:
        """Return whether rollouts with weights of ``version`` may have newer ones."""
        return train_steps // self.publish_every > version // self.publish_every

    def max_off_policy_steps(self, *, batch: int, most: int, most_over: int = 0) -> int:
        """Return how old a row can be when it is consumed, in train steps.

        Args:
            batch: what a train step consumes: rows, or groups with ``Consume.GROUPS``.
            most: what one rollout unit leaves at most, in the same unit; 1 for a group.
            most_over: rows that can lie in the buffer without making a batch (ROWS).

        >>> _fully_async(slots=24, window=0.3, interval=1).max_off_policy_steps(batch=8, most=1)
        3
        >>> _fixed(interval=2, offset=1).max_off_policy_steps(batch=4, most=4)
        2
        >>> _trainer_driven(interval=2, steps=3).max_off_policy_steps(batch=4, most=4)
        3
        """
        if self.in_groups:
            return (self.max_active + self.window - 2) // batch
        if self.in_rounds:  # each round ends in a batch of its own
            whole, rest = divmod(self.max_active, self._round)
            of_round = -(-self._round * most // batch)
            return max(0, whole * of_round - (-rest * most // batch) - 1)
        ahead = max((self.max_active - 1) * most, most_over)  # rows before those of a rollout
        if self.frees is Frees.WEIGHT_SYNC:
            return max(0, ahead + self._round * most - 1) // batch
        return max(0, ahead + self._round * most - 1) // batch + self.publish_every - 1

    def num_train_steps(self, *, num_steps: int, rows: int, batch: int, refills: bool) -> int:
        """Return the train steps of a run whose rollout steps all leave ``rows``.

        Args:
            num_steps: rollout steps.
            rows: that each leaves.
            batch: rows of a train step.
            refills: whether a storage fills short batches up with rows that it gave before, so
                that each turn of the trainer ends in a whole one.

        >>> _fixed(interval=2, offset=1).num_train_steps(
        ...     num_steps=4, rows=4, batch=3, refills=False)  # 3 of one round, 3 of the rest
        6
        """
        if not (self.in_rounds or refills):
            return max(1, -(-num_steps * rows // batch))
        turns = max(0, num_steps - self.offset) // self._round
        left = num_steps - turns * self._round
        return max(1, turns * -(-self._round * rows // batch) - (-left * rows // batch))

    def most_steps_waiting(self, *, rows: int, batch: int) -> int:
        """Return how many rollout steps may lie in the buffer when the trainer begins to read.

        Args:
            rows: that a rollout step leaves.
            batch: rows of a train step.
        """
        if self.in_rounds:
            return self.max_active
        if self.pulls_at_barrier:
            return self._round - (-batch // rows) - 1
        return -(-self.publish_every * batch // rows)

    def in_turns(self) -> SyncPolicy:
        """Return the policy of a run whose rollouts never begin beside a train step.

        In turns all whole batches are trained before the next rollout step begins.
        """
        return replace(self, max_active=1) if self.consume is Consume.ROWS else self

    @property
    def _round(self) -> int:
        return self.pull_every or 1


def policy_of(config: Config) -> SyncPolicy:
    """Return the policy of a run."""
    sync, explorer = config.synchronizer, config.explorer
    of_explorer = sync.explorer_sync_interval or sync.sync_interval
    of_trainer = sync.trainer_sync_interval or sync.sync_interval
    steps = explorer.max_inflight_batches
    if config.is_standalone:
        return SyncPolicy(
            style=sync.sync_style,
            consume=Consume.ROWS,
            max_active=steps,
            publish_every=of_trainer,
            pull_every=of_explorer,
        )
    if sync.sync_style == "explorer_driven":
        return _explorer_driven(interval=of_explorer, steps=steps)
    if sync.sync_style == "trainer_driven":
        return _trainer_driven(interval=of_trainer, steps=steps)
    if begins_groups(config) and config.mode == "both":
        slots = steps * config.buffer.batch_size
        return _fully_async(slots=slots, window=explorer.window, interval=sync.sync_interval)
    return _fixed(interval=sync.sync_interval, offset=sync.sync_offset)


def begins_groups(config: Config) -> bool:
    """Return whether a file asks for groups that begin one by one, which its mode may not have."""
    return config.synchronizer.sync_style == "fully_async"


def _fixed(*, interval: int, offset: int) -> SyncPolicy:
    return SyncPolicy(
        style="fixed",
        consume=Consume.ROUNDS,
        max_active=interval + offset,
        pull_every=interval,
    )


def _explorer_driven(*, interval: int, steps: int) -> SyncPolicy:
    return SyncPolicy(
        style="explorer_driven",
        consume=Consume.ROWS,
        max_active=steps,
        pull_every=interval,
        frees=Frees.TRAIN_STEP,
    )


def _trainer_driven(*, interval: int, steps: int) -> SyncPolicy:
    return SyncPolicy(
        style="trainer_driven",
        consume=Consume.ROWS,
        max_active=steps,
        publish_every=interval,
        frees=Frees.TRAIN_STEP,
    )


def _fully_async(*, slots: int, window: float, interval: int) -> SyncPolicy:
    return SyncPolicy(
        style="fully_async",
        consume=Consume.GROUPS,
        max_active=slots,
        window=max(1, int(window * slots)),
        publish_every=interval,
    )
