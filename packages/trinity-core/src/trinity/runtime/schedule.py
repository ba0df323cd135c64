"""What a run does next, as plain decisions: may a rollout begin, is there a turn, is a sync due.

``runtime/loop.py`` asks in its order and acts; here nothing is changed. A run *in turns* trains
nothing before all is there that the next sync waits for; *overlapped*, whole batches are trained
beside rollouts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.common.sync_policy import Consume

if TYPE_CHECKING:
    from trinity.common.sync_policy import SyncPolicy
    from trinity.explorer.rollout_buffer import RolloutBuffer
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.progress import Progress


@dataclass(kw_only=True)
class RunLimits:
    """Where a run ends and evaluates.

    Attributes:
        explore_steps: fewer once there are no more tasks.
        train_steps: infinite where whatever the rollouts give is trained.
        rows_of_step: that a rollout step gives if nothing is dropped.
        has_rollouts: False: the rows were there before.
        has_trainer: False: rows are collected alone.
        has_evaluation: whether there are tasks to evaluate on.
        eval_interval: explore steps between two evaluations; 0: none but the last.
        eval_on_startup: whether the first one comes before all steps.
    """

    explore_steps: int
    train_steps: float = math.inf
    rows_of_step: int = 1
    has_rollouts: bool = True
    has_trainer: bool = True
    has_evaluation: bool = False
    eval_interval: int = 0
    eval_on_startup: bool = False

    @classmethod
    def of(cls, parts: Parts) -> RunLimits:
        """Return the limits of a stage."""
        config = parts.config
        return cls(
            explore_steps=parts.num_explore_steps,
            train_steps=math.inf if parts.num_train_steps is None else parts.num_train_steps,
            rows_of_step=config.buffer.batch_size * (config.algorithm.repeat_times or 1),
            has_rollouts=parts.explorer is not None,
            has_trainer=parts.trainer is not None and parts.strategy is not None,
            has_evaluation=parts.has_evaluation,
            eval_interval=config.explorer.eval_interval,
            eval_on_startup=config.explorer.eval_on_startup,
        )


@dataclass(kw_only=True)
class Schedule:
    """Decides by the policy, the slots and how far the run is.

    Who asks holds the buffer's lock where rollouts may begin meanwhile.
    """

    policy: SyncPolicy
    buffer: RolloutBuffer
    progress: Progress
    limits: RunLimits
    in_turns: bool

    @property
    def is_ahead(self) -> bool:
        """Return whether rollout steps begin by themselves, and rows are trained across them."""
        return not self.in_turns and self.policy.consume is Consume.ROWS

    @property
    def is_trained_enough(self) -> bool:
        return self.progress.train_steps >= self.limits.train_steps

    @property
    def has_newer_weights(self) -> bool:
        """Return whether rollouts are to get newer weights, or a restore gave them unsaid."""
        progress = self.progress
        return progress.is_sync_untold or progress.train_steps > progress.weights_version

    @property
    def may_explore(self) -> bool:
        """Return whether another rollout step is wanted.

        What is trained ahead in a round ends no run earlier: the steps count that were synced.
        """
        in_rounds = self.policy.in_rounds
        counted = self.progress.weights_version if in_rounds else self.progress.train_steps
        is_wanted = self.limits.has_rollouts and counted < self.limits.train_steps
        return is_wanted and self.progress.explore_steps < self.limits.explore_steps

    # --- training -----------------------------------------------------------------------------

    @property
    def num_rounds(self) -> int:
        return self.policy.rounds_before(self.progress.last_sync_step)

    @property
    def last_consumable(self) -> float:
        """Return the youngest rollout step whose rows may be trained now: of a round its last."""
        if not self.policy.in_rounds:
            return math.inf
        return self.policy.last_step_of_round(self.num_rounds + 1)

    def may_train_beside(self, *, is_stopping: bool) -> bool:
        """Return whether a whole batch may be trained while rollouts go on, if there is one."""
        if self.in_turns or self.is_trained_enough or not self.limits.has_trainer:
            return False
        return not (self.policy.in_rounds and is_stopping)

    def is_turn(self, available: int) -> bool:
        """Return whether all is there that the next sync waits for, and it is waited for.

        Args:
            available: rows that may be trained.
        """
        policy, at = self.policy, self.progress.explore_steps
        if not self.limits.has_trainer:
            return False
        if policy.in_rounds:
            return at >= policy.sync_point(self.num_rounds + 1)
        if not self.in_turns:
            return False
        if policy.pulls_at_barrier:
            return at > self.progress.last_sync_step and policy.pull_point(at) == at
        missing = policy.publish_every - self.progress.train_steps % policy.publish_every
        return available >= missing * self.buffer.batch

    # --- weights ------------------------------------------------------------------------------

    @property
    def is_published(self) -> bool:
        """Return whether there are newer weights that rollouts may have."""
        progress = self.progress
        is_newer = progress.is_sync_untold or self.policy.is_published(
            train_steps=progress.train_steps, version=progress.weights_version
        )
        return is_newer and not self.policy.in_rounds

    def is_sync_due(self, available: int) -> bool:
        """Return whether weights move now: at a barrier, if the policy has one.

        There they move only if a rollout step would begin with them.
        """
        if not self.is_published:
            return False
        if not self.policy.pulls_at_barrier:
            return True
        at = self.progress.explore_steps
        is_at_barrier = self.buffer.begun == at == self.policy.pull_point(at)
        is_new = at > self.progress.last_sync_step
        return is_at_barrier and is_new and self.may_explore and self._last_slot(available) > at

    # --- rollouts -----------------------------------------------------------------------------

    def last_step(self, available: int) -> float:
        """Return the rollout step up to which all may begin, as long as nothing else changes."""
        explored = self.progress.explore_steps
        last = min(
            self._last_slot(available),
            self._next_pull(),
            self.limits.explore_steps,
            self.next_evaluation,
        )
        if self.in_turns:
            return min(last, explored + 1)
        return last if self.policy.in_rounds else min(last, self._last_wanted(available))

    def _last_slot(self, available: int) -> float:
        """Return the last rollout step that has a slot; one more where nobody could go on."""
        explored, begun = self.progress.explore_steps, self.buffer.begun
        if not self.limits.has_trainer:
            return math.inf  # no slot waits for it
        if self.policy.in_rounds:
            return self.policy.sync_point(self.num_rounds + 1)  # that many slots, counted from it
        if self.in_turns:
            return explored + 1  # rollouts go on until there is a turn
        last = begun + self.policy.max_active - len(self.buffer.slots)
        return max(last, explored + 1) if self._is_stuck(available) else last

    def _is_stuck(self, available: int) -> bool:
        """Return whether nothing is in flight and no batch is whole."""
        can_train = available >= self.buffer.batch and not self.is_trained_enough
        is_idle = self.buffer.begun == self.progress.explore_steps
        return is_idle and not can_train

    def _next_pull(self) -> float:
        """Return the rollout step after which newer weights are taken that are there (barrier)."""
        if not (self.is_ahead and self.policy.pulls_at_barrier and self.is_published):
            return math.inf
        return self.policy.pull_point(max(self.buffer.begun, self.progress.last_sync_step + 1))

    def _last_wanted(self, available: int) -> float:
        """Return the rollout step with which all is there that the last train step consumes."""
        limits, begun = self.limits, self.buffer.begun
        if limits.train_steps == math.inf:
            return math.inf
        in_flight = (begun - self.progress.explore_steps) * limits.rows_of_step
        there = self.buffer.num_rows() + in_flight
        missing = (limits.train_steps - self.progress.train_steps) * self.buffer.batch - there
        return begun + max(int(self._is_stuck(available)), -(-missing // limits.rows_of_step))

    # --- evaluation ---------------------------------------------------------------------------

    @property
    def next_evaluation(self) -> float:
        """Return the rollout step after which an evaluation comes next; infinity: none."""
        every = self.limits.eval_interval
        if not self.limits.has_evaluation or every <= 0:
            return math.inf
        return (self.progress.explore_steps // every + 1) * every

    @property
    def is_evaluation_step(self) -> bool:
        """Return whether one comes now: at the start and each interval, but for the run's end."""
        at, every = self.progress.explore_steps, self.limits.eval_interval
        is_step = self.limits.eval_on_startup if at == 0 else every > 0 and at % every == 0
        return self.limits.has_evaluation and is_step and self.may_explore

    @property
    def evaluates_beside(self) -> bool:
        return self.is_ahead

    @property
    def is_evaluated(self) -> bool:
        """Return whether the evaluation of this step is done, or asked for.

        Beside training one a step is enough: newer weights make no new step.
        """
        if self.evaluates_beside:
            return self.progress.evaluated_step == self.progress.explore_steps
        return self.progress.is_evaluated
