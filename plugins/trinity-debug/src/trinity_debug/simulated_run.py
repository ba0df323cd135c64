"""A run on a virtual clock: the run's own loop and schedule, with parts that only take time.

``Loop``, ``Schedule``, ``RolloutBuffer``, ``ReadyRows``, ``ContinuousExplorer``, ``GroupStorage``
and ``ReadyGroups`` are those of a run, so a simulated run begins rollouts, trains and syncs when a
real one would. Each part counts and lets time pass.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.config import Config
from trinity.common.sync_policy import policy_of
from trinity.explorer.explorer import ExploreResult
from trinity.runtime.loop import Loop
from trinity.runtime.rollouts import RolloutEnd

from trinity_debug.simulated_clock import Clock
from trinity_debug.simulated_engines import Engines, Seconds
from trinity_debug.simulated_groups import groups_of
from trinity_debug.virtual_parts import Rows, VirtualParts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_WINDOW", "Outcome", "Setup", "simulated"]

DEFAULT_WINDOW = Config().explorer.window
_NOTHING = Seconds(mean=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What is simulated.

    Attributes:
        style: ``synchronizer.sync_style``.
        offset: ``synchronizer.sync_offset``, of style ``fixed``.
        lead: ``explorer.max_inflight_batches``, of the other styles.
        interval: ``synchronizer.sync_interval``, or that of the side which the style asks for.
        window: ``explorer.window``, of style ``fully_async``.
        groups: of a rollout step.
        rows: of a group.
        requests: of a group: calls of its workflow, each of which takes a slot.
        train_rows: of a train step.
        steps: rollout steps of the run.
        engines: that answer.
        slots: rollouts that each engine holds at a time.
        ranks: GPUs of the trainer.
        width: GPUs of an engine.
        gpus: of all machines; 0: there are none.
        is_local: all parts are in one process, where nothing overlaps but single groups.
        in_turns: no rollout begins beside a train step: both sides use the same GPUs.
        rollout: of a request, in its engine.
        tool: that a request waits for beside that.
        train: of a train step.
        sync: of weights.
        around: of a rollout step, before and after its rollouts.
        until_failure: of an engine, on average; None: none fails.
        restart_s: of an engine that failed.
        most_s: of a request, which is cut then (``explorer.max_timeout``).
        shared: how fast each side computes while the other does, where they share CPU cores.
    """

    style: str
    offset: int = 0
    lead: int = 2
    interval: int = 1
    window: float = DEFAULT_WINDOW
    groups: int
    rows: int
    requests: int
    train_rows: int
    steps: int
    engines: int
    slots: int
    ranks: int = 1
    width: int = 1
    gpus: int = 0
    is_local: bool = False
    in_turns: bool = False
    rollout: Seconds
    tool: Seconds = _NOTHING
    train: Seconds
    sync: Seconds = _NOTHING
    around: Seconds = _NOTHING
    until_failure: float | None = None
    restart_s: float = 60.0
    most_s: float = math.inf
    shared: float = 1.0

    @property
    def config(self) -> Config:
        """Return the configuration that the schedule reads."""
        config = Config()
        config.mode = "both"
        config.buffer.batch_size = self.groups
        config.algorithm.repeat_times = self.rows
        config.synchronizer.sync_style = self.style
        config.synchronizer.sync_interval = self.interval
        config.synchronizer.sync_offset = self.offset
        config.explorer.max_inflight_batches = self.lead
        config.explorer.window = self.window
        config.explorer.eval_interval = 0
        config.explorer.eval_on_startup = False
        config.trainer.save_interval = 0
        return config


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a simulated run.

    Attributes:
        seconds: of the whole run.
        train_steps: that were made.
        rows: that were trained.
        engines_idle: the share of all slots' time in which no rollout ran.
        trainer_idle: the share of the time in which nothing was trained.
        off_policy: mean off-policy steps of the rows that were trained.
        most_off_policy: of the oldest row.
        num_lost: rollouts that began again because their engine failed.
    """

    seconds: float
    train_steps: int
    rows: int
    engines_idle: float
    trainer_idle: float
    off_policy: float
    most_off_policy: int
    num_lost: int

    @property
    def rows_per_s(self) -> float:
        """Return how many rows are trained in a second."""
        return self.rows / self.seconds

    @property
    def step_s(self) -> float:
        """Return the seconds between two train steps."""
        return self.seconds / max(1, self.train_steps)


def simulated(setup: Setup, *, seed: int = 0) -> Outcome:
    """Return what comes of a run; the same for the same seed."""
    parts = SimulatedParts(setup, seed=seed)
    parts.loop = Loop(parts, parts.own)  # type: ignore[arg-type]
    parts.loop.run()
    clock, engines = parts.clock, parts.engines
    seconds = max(clock.now, 1e-9)
    return Outcome(
        seconds=seconds,
        train_steps=parts.loop.progress.train_steps,
        rows=len(parts.ages) * (setup.rows if parts.groups is not None else 1),
        engines_idle=1.0 - engines.busy_s / (engines.num_slots * seconds),
        trainer_idle=1.0 - clock.trained_s / seconds,
        off_policy=sum(parts.ages) / max(1, len(parts.ages)),
        most_off_policy=max(parts.ages, default=0),
        num_lost=engines.num_lost,
    )


class SimulatedRollouts:
    """As ``Rollouts``: rollout steps one after the other, each as long as its slowest rollout."""

    is_evaluating = False

    def __init__(self, parts: SimulatedParts) -> None:
        self._parts, self._clock, self._buffer = parts, parts.clock, parts.rollouts
        self._last: float = 0
        self._end: tuple[float, int] | None = None  # of the step that runs, by the rollouts' clock
        self._ends: list[RolloutEnd] = []

    def __enter__(self) -> SimulatedRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs that would have to be stopped."""

    def let(self, last: float) -> None:
        self._last = last
        self._begin()

    def hold(self) -> None:
        self.let(self._buffer.begun)

    def ended(self) -> list[RolloutEnd]:
        ends, self._ends = self._ends, []
        return ends

    def wait(self, seen: int) -> None:
        if self._ends or self._buffer.num_changes != seen:
            return
        self._clock.wait_for_end()

    def next_end(self) -> float | None:
        """Return when the next rollout step ends; None: none runs."""
        return None if self._end is None else self._end[0]

    def tell_ends(self) -> None:
        """Tell of what has ended, and begin what may."""
        if self._end is None or self._end[0] > self._clock.rollout_now + 1e-9:
            return
        number, self._end = self._end[1], None
        setup = self._parts.setup
        rows = setup.groups * setup.rows
        self._parts.storage.rows += [number] * rows
        result = ExploreResult(metrics={}, num_experiences=rows)
        self._ends.append(RolloutEnd(step=number, result=result, state={}, began=0.0, seconds=0.0))
        self._buffer.num_changes += 1
        self._begin()

    def _begin(self) -> None:
        if self._end is not None or self._buffer.begun >= self._last:
            return
        one, parts = self._buffer.begin(), self._parts
        parts.versions[one.number] = parts.loop.progress.weights_version
        around = parts.setup.around.draw(parts.dice)
        ends = parts.ends_of(parts.setup.groups * parts.setup.requests)
        self._end = max(ends) + around, one.number


class SimulatedParts(VirtualParts):
    """Parts that take time, and count."""

    def __init__(self, setup: Setup, *, seed: int) -> None:
        self.setup, self.dice = setup, random.Random(seed)
        config = setup.config
        in_groups = policy_of(config).in_groups
        super().__init__(
            config,
            Rows(),
            batch=setup.groups if in_groups else setup.train_rows,
            steps=setup.steps,
            overlaps=not (setup.in_turns or setup.is_local),
        )
        self.clock = Clock(setup.shared)
        mean_s = setup.until_failure
        self.engines = Engines(
            setup.engines,
            slots=setup.slots,
            until_failure=None if mean_s is None else lambda: self.dice.expovariate(1.0 / mean_s),
            restart_s=setup.restart_s,
        )
        self.versions: dict[int, int] = {}  # that rollout steps or groups began with
        self.ages: list[int] = []  # off-policy steps of what was trained
        self.groups = self.own_groups = groups_of(self) if in_groups else None
        self.own = SimulatedRollouts(self)
        self.clock.rollouts = self.own_groups or self.own

    def ends_of(self, num_requests: int) -> list[float]:
        """Return when requests end that are asked for now, by the clock of the rollouts."""
        setup, dice, now = self.setup, self.dice, self.clock.rollout_now
        drawn = [setup.rollout.draw(dice) + setup.tool.draw(dice) for _ in range(num_requests)]
        return [self.engines.run(min(seconds, setup.most_s), at=now) for seconds in drawn]

    def sample(self, step: int) -> tuple[list[Any], dict[str, float]]:
        """Return the next batch, as a sample strategy does."""
        rows = self.source.read(self.setup.train_rows, timeout_s=0.0)
        if not rows:
            raise StopIteration
        return rows, {}

    def train_step(self, rows: Sequence[Any], *, step: int) -> dict[str, float]:
        """Take the time of a train step."""
        numbers = [row.info["group"] for row in rows] if self.groups is not None else rows
        self.ages += [step - 1 - self.versions[number] for number in numbers]
        self.clock.train(self.setup.train.draw(self.dice))
        return {}

    def synced(self, snapshot: object) -> int:
        """Take the time of a sync."""
        self.clock.wait(self.setup.sync.draw(self.dice))
        return int(self.loop.progress.weights_version)
