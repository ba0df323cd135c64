"""Groups in flight: each begins when there is room for it, and a step takes the oldest whole batch.

    tasks --begin, while there is a slot--> scheduler --ended--> pump: operators, advantages, write
               ^                                                            |
               +-- admit(): slots are free --+               take(): the oldest in the window

The pump is a thread of its own: groups end, and others take the place of those that left nothing,
while the trainer trains. Who waits for a batch is told what it waits for.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from trinity.explorer.explorer import Explorer, ExploreResult, RequestRunner
from trinity.explorer.finish import without_cut_runs
from trinity.explorer.group_metrics import GroupMetrics, StepMetrics
from trinity.explorer.groups import experiences_of, is_cut, kept_groups
from trinity.explorer.rollout_buffer import name_of_group
from trinity.explorer.stragglers import SlowGroups

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.metrics import Metrics
    from trinity.common.ports import EvaluationSet, ExperienceProcessor, TaskReader
    from trinity.common.workflows import Task
    from trinity.explorer.requests import RolloutRequest, RolloutResult
    from trinity.explorer.rollout_buffer import RolloutBuffer

logger = logging.getLogger(__name__)

LOOK_S = 1.0
MOST_IN_VAIN = 10  # batches of groups in a row: a filter may let none pass for good


class RequestTaker(RequestRunner, Protocol):
    """Takes requests at any time."""

    def begin(self, name: Hashable, requests: Sequence[RolloutRequest]) -> None:
        """Run these once there is room for them."""

    def ended(self, timeout_s: float) -> list[tuple[Hashable, list[RolloutResult]]]:
        """Return the names of requests that all ended, and how; none where none did in time."""

    def cut(self, name: Hashable) -> None:
        """Wait no longer for what has not ended of these; it may have to be said again."""

    def where(self, name: Hashable) -> str:
        """Return which engine answers these requests."""

    def moved(self) -> list[Hashable]:
        """Return what began again elsewhere since this was asked last."""

    def stop(self) -> None:
        """Leave all runs behind."""


class GroupStore(Protocol):
    """Where groups lie until a step takes them."""

    def take(self, groups: Sequence[str]) -> int:
        """Let these be read next, in this order; return how many experiences they have."""


class ContinuousExplorer(Explorer):
    """Explores in style ``fully_async``.

    Args:
        config: a resolved configuration.
        tasks: the training tasks.
        evaluation_sets: the evaluation tasks.
        scheduler: runs the requests; closed with the explorer.
        pipeline: takes the experiences of each group.
        shelf: where they lie.
        rollouts: the groups and their slots; its lock guards what is here, too.
        marks: how long the files are that the pipeline appends to; part of the state.
    """

    def __init__(  # noqa: PLR0913 -- what an explorer has, and where its groups lie
        self,
        config: Config,
        *,
        tasks: TaskReader,
        evaluation_sets: Sequence[EvaluationSet] = (),
        scheduler: RequestTaker,
        pipeline: ExperienceProcessor,
        shelf: GroupStore,
        rollouts: RolloutBuffer,
        marks: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        super().__init__(
            config,
            tasks=tasks,
            evaluation_sets=evaluation_sets,
            scheduler=scheduler,
            pipeline=pipeline,
        )
        self._own, self._stream, self._process = scheduler, tasks, pipeline
        self._shelf = shelf
        self._marks = marks
        self._buffer = rollouts
        steps = [tasks.num_steps, *filter(None, [config.trainer.total_steps])]
        self._most_groups = min(steps) * config.buffer.batch_size  # that are trained
        self._is_endless = config.buffer.total_steps is not None  # there is always another task
        self._num_in_vain, self._num_given_up = 0, 0  # groups in a row; and batches for those
        self._is_out = False  # no more groups begin
        self._ahead: list[Task] = []  # that were chosen and have not begun
        self._held: list[int] = []  # of an earlier process: they run once somebody asks
        self._began: dict[int, float] = {}
        self._slow = SlowGroups(config.explorer, batch_size=config.buffer.batch_size)
        self._evaluated: dict[Hashable, list[RolloutResult]] = {}
        self._is_evaluating = False
        self._metrics = StepMetrics(
            num_slots=config.explorer.runner_per_model
            * max(1, config.explorer.rollout_model.engine_num)
        )
        self._changed = rollouts.changed  # guards all above
        self._writing = threading.Lock()  # held while a group is on its way to the shelf
        self._error: BaseException | None = None  # ends the run
        self._is_closed = False
        self._pump: threading.Thread | None = None

    def admit(self, *, for_step: int) -> None:
        """Let groups begin while there are slots.

        Args:
            for_step: the explore step whose batch is waited for.
        """
        with self._changed:
            self._metrics.waits(for_step=for_step)
            self._begin_groups()
            self._tell_what_is_missing()

    def take(self, step: int) -> ExploreResult:
        """Return what the next batch gives: the oldest groups in the window, fewer at the end."""
        with self._changed:
            buffer = self._buffer
            numbers = buffer.ready_groups()
            num_overtaken, num_lag = (
                buffer.num_overtaken(numbers),
                buffer.off_policy_steps(step - 1),
            )
            buffer.consume_groups()
            self._slow.stepped()
            num_experiences = self._shelf.take([self._name(number) for number in numbers])
            metrics: Metrics = {
                **self._metrics.of_step(numbers, busy_s=self._own.busy_s),
                "rollout/hung_threads": float(self._own.num_hung),
                "groups/running": float(buffer.num_running),
                "groups/waiting": float(buffer.num_ready),
                "groups/overtaken": float(num_overtaken),
                "age/in_flight": float(num_lag),
            }
        return ExploreResult(metrics=metrics, num_experiences=num_experiences)

    def put_back(self) -> None:
        """Make the batch that was taken last ready again, with its metrics: it was not trained."""
        with self._changed:
            self._buffer.put_back(0)
            self._metrics.put_back()

    @property
    def is_out(self) -> bool:
        with self._changed:
            is_wanted = self._buffer.num_wanted < self._most_wanted and not self._is_out
            return not (self._buffer.num_running or is_wanted)

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def tell_the_rest(self) -> None:
        self._metrics.tell_the_rest()

    def state_dict(self) -> dict[str, Any]:
        with self._writing, self._changed:
            own = {
                "rollouts": self._buffer.state_dict(),
                "ahead": [task.index for task in self._ahead],
                "group_metrics": self._metrics.state_dict(),
                "in_vain": [self._num_in_vain, self._num_given_up],
            }
            return {**super().state_dict(), **own, "files": dict(self._marks())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if "group_metrics" not in state:  # of another policy, which leaves nothing on its way
            return
        self._metrics.load_state_dict(state["group_metrics"])
        self._ahead = [self._stream.again(index) for index in state["ahead"]]
        self._num_in_vain, self._num_given_up = state.get("in_vain", (0, 0))
        self._held = sorted(self._buffer.running)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            pump, self._pump = self._pump, None
        with ExitStack() as stack:
            stack.callback(super().close)
            if pump is not None:
                self._own.stop()
                pump.join(LOOK_S)

    def _run(self, tasks: Sequence[Task], *, batch: str, first: int) -> list[RolloutResult]:
        """Return the results of an evaluation, whose runs stand in line with those of groups."""
        requests = {
            (batch, number): self._requests(task, batch=batch, number=number)
            for number, task in enumerate(tasks, start=first)
        }
        with self._changed:
            for name, own in requests.items():
                self._own.begin(name, own)
            self._start_pump()
            self._is_evaluating = True  # it has slots that groups wait for: none is too slow
            while not requests.keys() <= self._evaluated.keys():
                if self._is_closed:
                    raise CancelledError
                self.check()
                self._changed.wait(LOOK_S)
            self._is_evaluating = False
            self._slow.paused(self._began)
            self._began = dict.fromkeys(self._began, time.monotonic())
            reports = [report for name in requests for report in self._evaluated.pop(name)]
            self._metrics.evaluated(sum(report.duration_s for report in reports))
            return reports

    @property
    def _most_wanted(self) -> int:
        """Return how many groups are to be trained in the whole run."""
        return self._most_groups - self._num_given_up * self._batch_size

    def _begin_groups(self) -> None:
        buffer = self._buffer
        while self._held:
            one = buffer.slots[self._held.pop(0)]
            one.version = buffer.version
            self._begin(one.number, self._stream.again(one.task))
        while buffer.has_slot and not self._is_out:
            if buffer.num_wanted >= self._most_wanted:
                break
            task = self._next_task()
            if task is not None:
                self._begin(buffer.begin(task=task.index).number, task)

    def _next_task(self) -> Task | None:
        """Return the next task; a selector chooses those of a batch together, each once."""
        if not self._ahead:
            try:
                self._ahead = self._stream.read(self._batch_size)
            except StopIteration:
                self._is_out = True
                self._buffer.notify()  # whoever waits for a group that ends need not
                return None
        return self._ahead.pop(0)

    def _begin(self, number: int, task: Task) -> None:
        batch, place = name_of_group(number, batch_size=self._batch_size)
        self._own.begin(number, self._requests(task, batch=batch, number=place))
        self._began[number] = time.monotonic()
        self._metrics.runs(num_running=self._buffer.num_running)
        self._start_pump()

    def _start_pump(self) -> None:
        if self._pump is None and not self._is_closed:
            self._pump = threading.Thread(target=self._follow, name="trinity-groups", daemon=True)
            self._pump.start()

    def _follow(self) -> None:
        """Take the ends of groups until the explorer is closed, or something fails for good."""
        can_fail = self._config.on_failed_run != "fail"
        try:
            while not self._is_closed:
                for name, given in self._own.ended(LOOK_S):
                    reports = without_cut_runs(given, can_fail=can_fail)
                    self.failed_attempts.note(reports)
                    if isinstance(name, int):
                        self._end(name, reports)
                    else:
                        with self._changed:
                            self._evaluated[name] = reports
                            self._changed.notify_all()
                self._note_moved()
                self._cut_slow_ones()
        except BaseException as error:  # noqa: BLE001 -- raised where a batch is waited for
            with self._changed:
                self._error = error
                self._buffer.notify()

    def _note_moved(self) -> None:
        """Let the time of groups begin anew that another engine makes from their beginning."""
        with self._changed:
            moved = self._began.keys() & self._own.moved()
            self._began |= dict.fromkeys(moved, time.monotonic())
            if moved:
                self._slow.moved()

    def _cut_slow_ones(self) -> None:
        with self._changed:
            if self._is_evaluating:
                return
            late = self._slow.late(self._buffer, began=self._began, now=time.monotonic())
        for number in late:
            self._own.cut(number)

    def _end(self, number: int, reports: Sequence[RolloutResult]) -> None:
        """Write what a group left, or let another take its place."""
        faults = [report for report in reports if not is_cut(report)]
        with self._changed:  # all that may begin has begun
            is_alone = self._buffer.num_running == 1
        if is_alone or self._watch.is_enough(faults):
            self._watch.check(faults)  # the first that ends says little of those that run
        self._tell(faults, what=f"group {self._name(number)}")
        has_parts = len(faults) == len(reports) or self._slow.keeps_parts
        kept = kept_groups(reports if has_parts else [])
        experiences = experiences_of(kept.results)
        self._tell_once(experiences)
        with self._writing:
            processed = self._process.process(experiences) if experiences else {}
            num_left = int(processed.get("experience_pipeline/num_written", len(experiences)))
            with self._changed:
                self._watch.note(faults)
                self._stream.feedback(self._process.feedback() if experiences else {})
                seconds = time.monotonic() - self._began.pop(number)
                if len(faults) == len(reports) and not self._is_evaluating:
                    self._slow.ended(seconds, number=number)
                own = GroupMetrics.of(reports, kept.results, processed)
                self._buffer.finish(number, num_left)
                if num_left:
                    self._metrics.ended(number, own)
                    self._num_in_vain = 0
                else:
                    self._metrics.dropped(own)
                    self._note_in_vain()
                self._metrics.runs(num_running=self._buffer.num_running)
                self._begin_groups()
                self._buffer.notify()

    def _note_in_vain(self) -> None:
        """Count a group that left nothing; so many in a row cost the run a batch."""
        self._num_in_vain += 1
        if self._is_endless and self._num_in_vain >= MOST_IN_VAIN * self._batch_size:
            logger.warning(
                "%d groups in a row have no experiences to train on: skipping one training step",
                self._num_in_vain,
            )
            self._num_in_vain, self._num_given_up = 0, self._num_given_up + 1
            self._metrics.forget_dropped()

    def _tell_what_is_missing(self) -> None:
        if self._metrics.waited_s() < self._metrics.patience_s:
            return
        self._metrics.patience_s *= 3
        number = min(self._began, default=None)
        if number is None:
            return
        logger.warning(
            "the trainer waits for group %s (straggler), running on %s for %.0f s",
            self._name(number), self._own.where(number), time.monotonic() - self._began[number],
        )  # fmt: skip

    def _name(self, number: int) -> str:
        batch, task = name_of_group(number, batch_size=self._batch_size)
        return f"{batch}/{task}"
