"""The run: rollouts leave rows, the trainer consumes them, weights move. For every sync policy.

    rollout thread     begins while there is a slot         RUNNING
                            |                                  | finish
                            v                                  v
    RolloutBuffer      slots, window, count of rows          READY ---consume---> CONSUMED --> free
                            ^                                                         ^
    this thread        collect -> take turn -> evaluate -> sync if due -> admit -> train or wait
                            |                                                         |
    observers          metrics, history, samples, display; checkpoints: this thread writes all files

    who             writes                   waits for           who unblocks it
    rollout thread  rows, and how steps end  a slot              this thread, in `_admit`
    this thread     weights, slots, files    anything that ends  the rollout thread
    engines         replies                  a sync              this thread, in `_sync`

Where groups begin one by one, they begin and end in the explorer's thread, under the same lock. A
*turn* trains all that the next sync waits for, then syncs: of rounds, and in turns, where a rollout
step runs inside `wait`. ``runtime/schedule.py`` decides when, by ``common/sync_policy.py``.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.errors import PluginError
from trinity.runtime.audit import audited_sync
from trinity.runtime.error_context import boundary
from trinity.runtime.observers import Observers
from trinity.runtime.record.progress import Progress
from trinity.runtime.saver import Saver
from trinity.runtime.schedule import RunLimits, Schedule
from trinity.runtime.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.explorer.explorer import ExploreResult
    from trinity.runtime.parts import Parts
    from trinity.runtime.rollouts import RolloutEnd, Rollouts


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; everything up to the last whole phase is saved."""


class Loop:
    """Runs one stage, from the progress there is until every step is done.

    Args:
        parts: of the stage.
        rollouts: runs its rollout steps and evaluations.

    Attributes:
        progress: how far the run is.
    """

    def __init__(self, parts: Parts, rollouts: Rollouts) -> None:
        self._parts, self._buffer, self._policy = parts, parts.rollouts, parts.policy
        self.progress = Progress()
        self._schedule = Schedule(
            policy=parts.policy,
            buffer=parts.rollouts,
            progress=self.progress,
            limits=RunLimits.of(parts),
            in_turns=parts.in_turns,
        )
        self._rollouts = rollouts
        self._observers = Observers(parts, self._schedule)
        self._saver = Saver(parts)
        self._selection = Selection(parts.config)
        self._since = time.perf_counter()  # the progress had its seconds then
        self._has_nothing = False  # the sample strategy said so of what is there

    def run(self) -> None:
        """Go on from the progress there is until every step is done.

        Raises:
            Interrupted: it was asked to stop; a checkpoint was written.
            TrinityError: a part failed; what was trained is saved.
        """
        self._observers.began()
        with self._saver.saved(self.progress), self._rollouts:
            self._admit_groups()
            while True:
                seen = self._buffer.num_changes
                self._collect()
                if self._schedule.is_turn(self._available()):
                    self._take_turn()
                self._evaluate_if_due()
                if not self._goes_on():
                    break
                self._sync_if_due()
                self._admit()
                if self._can_train():
                    self._train(beside=True)
                else:
                    self._observers.begin_step()
                    self._wait(seen)
            self._stop_if_asked()
            self._finish()

    def _goes_on(self) -> bool:
        """Return whether anything runs, or may still begin."""
        is_wanted = self._schedule.may_explore and not self._parts.interrupt.is_requested
        if self._parts.groups is not None:
            is_out = self._parts.groups.is_out and not self._available()
            return self._rollouts.is_evaluating or (is_wanted and not is_out)
        return is_wanted or self._buffer.num_running > 0 or self._rollouts.is_evaluating

    # --- one thing each -----------------------------------------------------------------------

    def _collect(self) -> None:
        """Note what ended: rollout steps, an evaluation, or the tasks."""
        for end in self._rollouts.ended():
            self._saver.explorer_state = end.state
            if end.evaluation is not None:
                self._observers.evaluated(end.evaluation, end.seconds)
                if self._selection.note(end.evaluation, self.progress):
                    self._save()
            elif end.result is None:
                self._end_of_tasks()
            else:
                self._note_explored(end)
            if not self._schedule.is_ahead:
                self._stop_if_asked()
        self._end_early_if_due()

    def _take_turn(self) -> None:
        """Train all that the next sync waits for, of a round its short batch too; then sync."""
        schedule, policy, progress = self._schedule, self._policy, self.progress
        needed = 1 if policy.in_rounds else self._buffer.batch
        while not schedule.is_trained_enough and self._available() >= needed:
            by_trainer = not policy.pulls_at_barrier
            if (by_trainer and not schedule.is_turn(self._available())) or not self._train():
                break
            if by_trainer:
                self._sync_if_due()
        if policy.in_rounds:
            self._sync(last=schedule.last_consumable)
        elif schedule.has_newer_weights and (policy.pulls_at_barrier or not self._available()):
            self._sync()  # what was left of an interval was too old, or the rollouts ask for it
        progress.last_sync_step = progress.explore_steps

    def _can_train(self) -> bool:
        """Return whether a batch may be trained beside rollouts: a whole one, but for the end."""
        if not self._schedule.may_train_beside(is_stopping=self._parts.interrupt.is_requested):
            return False
        groups = self._parts.groups
        needed = 1 if groups is not None and groups.is_out else self._buffer.batch
        return self._num_trainable() >= needed

    def _train(self, *, beside: bool = False) -> bool:
        """Make one train step; return False where all that was there is too old.

        Args:
            beside: a rollout step runs meanwhile, which ends before the run stops.
        """
        parts, progress, step = self._parts, self.progress, self.progress.train_steps + 1
        assert parts.trainer is not None
        assert parts.strategy is not None
        self._observers.begin_step()
        began = time.perf_counter()
        groups = self._take_groups()
        try:
            with boundary(f"sampling for optimizer step {step}", may_end=True):
                batch, sampled = parts.strategy.sample(step)
        except StopIteration:  # until there is more
            self._check_groups_refused(groups)
            self._has_nothing = True
            if parts.source is not None:
                parts.source.reconcile()
            return False
        sampled_s = time.perf_counter() - began
        parts.in_hand = batch
        with boundary(f"optimizer step {step}"):
            if parts.colocated is not None:
                parts.colocated.sleep()
            metrics = parts.trainer.train_step(batch, step=step)
        parts.in_hand = []
        self._buffer.batch_trained()
        progress.train_steps = step
        progress.trained_experiences += len(batch)
        if groups is not None:
            self._observers.explored(groups)
        self._observers.trained(batch, metrics, sampled, began=began, sampled_s=sampled_s)
        interval = parts.config.trainer.save_interval
        if interval > 0 and step % interval == 0:
            self._save()
        self._end_early_if_due()
        if not beside or parts.groups is not None:
            self._stop_if_asked()
        return True

    def _sync(self, *, last: float = math.inf) -> None:
        """Give rollouts the trainer's weights, if they are newer; free slots up to ``last``."""
        parts, progress, began = self._parts, self.progress, time.perf_counter()
        is_newer = progress.train_steps > progress.weights_version
        version = progress.weights_version = progress.train_steps
        if parts.sync is not None and parts.trainer is not None:
            with boundary(f"the sync after explore step {progress.explore_steps}"):
                if is_newer:
                    version = audited_sync(parts, partial(parts.trainer.snapshot, copy=False))
            self._observers.synced(version, began=began)
            progress.is_sync_untold = False
        with self._buffer.changed:
            self._buffer.weights_synced(version=progress.weights_version, last=last)
        self._admit_groups()

    def _sync_if_due(self) -> None:
        """Let weights move if it is time; nothing begins between this look and the weights."""
        if self._rollouts.is_evaluating or not self._schedule.is_published:
            return
        with self._buffer.changed:
            self._rollouts.hold()
            is_due = self._schedule.is_sync_due(self._num_trainable())
        if is_due:
            self._sync()
            if self._policy.pulls_at_barrier:
                self.progress.last_sync_step = self.progress.explore_steps

    def _admit(self) -> None:
        """Say how far rollouts may go."""
        if self._parts.groups is not None:
            self._admit_groups()
            return
        is_closed = self._rollouts.is_evaluating or self._parts.interrupt.is_requested
        with self._buffer.changed:
            begun = self._buffer.begun
            last = begun if is_closed else self._schedule.last_step(self._num_trainable())
            self._rollouts.let(last)

    def _admit_groups(self) -> None:
        if self._parts.groups is not None:
            with boundary("the start of a group of rollouts"):
                self._parts.groups.admit(for_step=self.progress.explore_steps + 1)

    # --- evaluation, the end, checkpoints -----------------------------------------------------

    def _evaluate_if_due(self) -> None:
        """Evaluate between two rollouts; with the newest weights, but for rounds."""
        schedule = self._schedule
        if not schedule.is_evaluation_step or schedule.is_evaluated:
            return
        if self._rollouts.is_evaluating or self._parts.interrupt.is_requested:
            return
        if not (self._policy.in_rounds or self._schedule.in_turns) and schedule.has_newer_weights:
            self._sync()
        self._rollouts.evaluate(self.progress.explore_steps)
        if not schedule.evaluates_beside or self._selection.keeps_best:  # no newer weights are kept
            self._wait_evaluated()

    def _evaluate_last(self) -> None:
        limits = self._schedule.limits
        is_asked = limits.has_evaluation and limits.has_rollouts
        if is_asked and not self.progress.is_evaluated:
            self._rollouts.evaluate(self.progress.explore_steps)
            self._wait_evaluated()
            self._stop_if_asked()

    def _wait_evaluated(self) -> None:
        while self._rollouts.is_evaluating:
            seen = self._buffer.num_changes
            self._collect()
            if self._rollouts.is_evaluating:
                self._wait(seen)

    def _wait(self, seen: int) -> None:
        if self._parts.colocated is not None and self._parts.colocated.is_asleep:
            self._sync()  # none was due; in turns a rollout begins in `wait`
        self._rollouts.wait(seen)

    def _finish(self) -> None:
        """Train what no sync asked for, the last short batch too; sync and evaluate."""
        schedule, limits = self._schedule, self._schedule.limits
        if limits.has_trainer:
            while not schedule.is_trained_enough:
                if limits.has_rollouts and not self._available(last=math.inf):
                    break
                if not self._train():
                    self._stop_if_asked()
                    break
                if not self._policy.pulls_at_barrier and self._parts.groups is None:
                    self._sync_if_due()
            if schedule.has_newer_weights and limits.has_rollouts:
                self._sync()
            with self._buffer.changed:
                self._buffer.weights_synced(version=self.progress.weights_version)
        if self._parts.groups is not None:
            self._parts.groups.tell_the_rest()
        self._evaluate_last()

    def _end_of_tasks(self) -> None:
        """Note that refilled steps took the tasks of later ones, or that a service is to end."""
        limits, progress = self._schedule.limits, self.progress
        self._stop_if_asked()
        progress.tasks_ended_of = progress.tasks_ended_of or limits.explore_steps
        limits.explore_steps = self._parts.num_explore_steps = progress.explore_steps

    def _note_explored(self, end: RolloutEnd) -> None:
        assert end.result is not None
        with self._buffer.changed:
            self._buffer.finish(end.step, end.result.num_experiences)
        self.progress.explore_steps += 1
        self._has_nothing = False
        self._observers.explored(end.result, began=end.began, seconds=end.seconds)
        if not self._schedule.limits.has_trainer:
            with self._buffer.changed:
                self._buffer.drop_rows(end.result.num_experiences)
                self._buffer.weights_synced(version=0)
            self._save()  # a place in the tasks and in what is written, nothing large

    def _take_groups(self) -> ExploreResult | None:
        """Let the strategy read the next batch of whole groups, where groups begin one by one."""
        if self._parts.groups is None:
            return None
        self.progress.explore_steps += 1  # where it fails the saver takes it back
        return self._parts.groups.take(self.progress.explore_steps)

    def _check_groups_refused(self, groups: ExploreResult | None) -> None:
        """Refuse a strategy that gives no batch of whole groups: they would be lost.

        Raises:
            PluginError: there was a batch.
        """
        if groups is not None:
            name = self._parts.config.algorithm.sample_strategy
            raise PluginError(
                f"sample strategy {name} gave no batch of {groups.num_experiences} experiences "
                f"that are ready, and where groups begin one by one each batch is trained when it "
                f"is whole. Let it read them, or use another synchronizer.sync_style."
            )

    def _available(self, *, last: float | None = None) -> int:
        """Return how much train steps may consume: rows, or whole groups of the next batch."""
        if self._parts.groups is not None:
            with self._buffer.changed:
                return len(self._buffer.ready_groups())
        source = self._parts.source
        if source is None:
            return 0
        source.last = self._schedule.last_consumable if last is None else last
        return source.available()

    def _num_trainable(self) -> int:
        """Return the same; 0 where the strategy said that it gives no batch of it."""
        return 0 if self._has_nothing else self._available()

    def resume(self, progress: Progress, rollouts: Mapping[str, Any] | None) -> None:
        """Stand where a checkpoint stands whose parts are restored.

        Args:
            progress: of the checkpoint, with the weights version that the engines have now.
            rollouts: the state of the rollout buffer; None: there was none.
        """
        self.progress = self._schedule.progress = progress
        limits = self._schedule.limits
        if progress.tasks_ended_of == limits.explore_steps:
            limits.explore_steps = self._parts.num_explore_steps = progress.explore_steps
        self._observers.resumed(rollouts)
        self._rollouts.hold()
        self._saver.resumed(progress)

    def _save(self) -> None:
        self._saver.save(self.progress)

    def _end_early_if_due(self) -> None:
        """Let the run end as at its last step, where `early_stopping` or an advisor says so."""
        limits, progress, reason = self._schedule.limits, self.progress, self._parts.stop_reason
        if self._parts.config.trainer.early_stopping is not None:
            now = time.perf_counter()
            progress.seconds, self._since = progress.seconds + now - self._since, now
            reason = reason or self._selection.reason_to_stop(progress)
        if reason and limits.train_steps > progress.train_steps:
            self._parts.display.say(f"stopping early: {reason}")
            limits.train_steps = progress.train_steps
            limits.explore_steps = min(limits.explore_steps, self._buffer.begun)

    def _stop_if_asked(self) -> None:
        if self._parts.interrupt.is_requested:
            self._save()
            raise Interrupted
