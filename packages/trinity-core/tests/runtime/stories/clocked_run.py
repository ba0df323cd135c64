"""Drive the real loop by a clock: rollouts, trainer and engines only count.

``Loop``, ``Schedule``, ``RolloutBuffer``, ``ReadyRows``, ``ContinuousExplorer``, ``GroupStorage``
and ``ReadyGroups`` are the real ones. A rollout step or a group takes as long as its scenario says.
"""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trinity.common.config import Config
from trinity.common.sync_policy import policy_of
from trinity.explorer.explorer import ExploreResult
from trinity.explorer.rollout_buffer import has_ended
from trinity.runtime.group_storage import GroupSink
from trinity.runtime.loop import Interrupted, Loop
from trinity.runtime.record.progress import read_progress, read_rollouts
from trinity.runtime.rollouts import RolloutEnd
from trinity_debug.simulated_groups import Tasks
from trinity_debug.virtual_parts import Rows, VirtualParts

sys.path.insert(0, str(Path(__file__).parent))
from clocked_groups import ClockedGroups, GroupPipeline
from scenarios import COUNTED, Scenario, story_line

FOREVER = float("inf")


class Killed(KeyboardInterrupt):
    """The process is gone; what was saved stays."""


class World:
    """The clock, the story, and whether the run is asked to stop or is killed."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.story: list[tuple[Any, ...]] = []
        self.stops, self.kills = list(scenario.stops), list(scenario.kills)
        self.passes: list[Callable[[float], None]] = []  # told how time passes
        self.versions: dict[int, int] = {}  # that rollouts began with
        self.saved: dict[str, Any] | None = None
        self._at_start = 0
        self._is_in_hand = False

    def say(self, *line: Any) -> None:
        self.story.append(line)
        if line[0] == "begin":
            self.versions[line[1]] = line[2]
        if line[0] in {"took", "train"}:
            self._is_in_hand = line[0] == "took"
        if self.kills and self._num_done() - self._at_start >= self.kills[0]:
            raise Killed

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        for one in self.passes:
            one(until)
        self.now = max(self.now, until)

    @property
    def is_requested(self) -> bool:
        is_asked = bool(self.stops) and self._num_done() - self._at_start >= self.stops[0]
        return is_asked and not self._is_in_hand

    def begin_again(self) -> None:
        del self.stops[:1], self.kills[:1]
        self._is_in_hand = False
        self._at_start, self.passes = self._num_done(), []

    def _num_done(self) -> int:
        return sum(line[0] in COUNTED for line in self.story)


class ClockedRows(Rows):
    """Knows which version each row was begun with."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world, self.gives_again = world, world.scenario.replay

    def drop_older(self, version: int) -> None:
        kept = [row for row in self.rows if self._world.versions[row] >= version]
        self.rows = deque(kept)


class ClockedRollouts:
    """As ``Rollouts``: one rollout step or evaluation at a time, as long as the script says."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._world, self._buffer = parts, parts.world, parts.rollouts
        self._last: float = parts.rollouts.begun
        self._end: tuple[float, int] | None = None
        self._asked: int | None = None
        self._evaluates_until: float | None = None
        self._ends: list[RolloutEnd] = []
        self._is_out = False
        self.is_evaluating = False

    def __enter__(self) -> ClockedRollouts:
        self._world.passes.append(self._pass)
        return self

    def __exit__(self, *_: object) -> None:
        self._world.passes.remove(self._pass)

    def let(self, last: float) -> None:
        self._last = last
        self._begin()

    def hold(self) -> None:
        self.let(self._buffer.begun)

    def evaluate(self, step: int) -> None:
        self._asked, self.is_evaluating = step, True
        self._begin()

    def ended(self) -> list[RolloutEnd]:
        ends, self._ends = self._ends, []
        self.is_evaluating &= not any(end.evaluation is not None for end in ends)
        return ends

    def wait(self, seen: int) -> None:
        at = [self._end[0]] if self._end else []
        at += [self._evaluates_until] if self._evaluates_until is not None else []
        if self._ends or self._buffer.num_changes != seen:
            return
        at += self._parts.ends.values()
        if not at:
            raise RuntimeError(f"nothing runs: {self._world.story[-5:]}")
        self._world.advance(min(at) - self._world.now)

    def _begin(self) -> None:
        if self._end is not None or self._evaluates_until is not None:
            return
        world, buffer = self._world, self._buffer
        if self._asked is not None:
            version = self._parts.loop.progress.weights_version
            world.say("evaluate", self._asked, version)
            self._evaluates_until = world.now + world.scenario.seconds("evaluate", self._asked)
            self._asked = None
        elif buffer.begun < self._last and not self._is_out:
            if buffer.begun == world.scenario.tasks_end_after:
                self._is_out = True
                self._tell(buffer.begun + 1)
                return
            one = buffer.begin()
            world.say("begin", one.number, self._parts.loop.progress.weights_version)
            self._end = world.now + world.scenario.seconds("rollout", one.number), one.number

    def _pass(self, until: float) -> None:
        while True:
            if self._evaluates_until is not None and self._evaluates_until <= until:
                self._world.now, self._evaluates_until = self._evaluates_until, None
                self._tell(0, evaluation={"eval/rows/reward/mean@1": 0.5})
            elif self._end is not None and self._end[0] <= until:
                (self._world.now, number), self._end = self._end, None
                rows = self._world.scenario.rows_of(number)
                self._parts.storage.write(rows)
                self._tell(number, result=ExploreResult(metrics={}, num_experiences=len(rows)))
            else:
                return
            self._begin()

    def _tell(self, step: int, **given: Any) -> None:
        self._ends.append(RolloutEnd(step=step, **given, state={}, began=0.0, seconds=0.0))
        self._buffer.num_changes += 1


class Parts(VirtualParts):
    """Parts that only count; the age of rows is checked by the test, not by the loop."""

    def __init__(self, world: World) -> None:
        scenario = world.scenario
        self.world = world
        self.ends: dict[int, float] = {}
        config = _config(scenario)
        in_groups = policy_of(config).in_groups
        super().__init__(
            config,
            ClockedRows(world),
            batch=scenario.groups if in_groups else scenario.batch,
            steps=scenario.steps,
            overlaps=scenario.overlap,
        )
        self.loop = SimpleNamespace()
        self.num_train_steps = scenario.train_limit
        self.has_evaluation = scenario.has_evaluation
        self.interrupt, self.observers = world, [self]
        if in_groups:
            self._add_groups()
        if scenario.mode == "explore":
            self.trainer = self.strategy = self.source = None
        if scenario.mode == "train":
            self.explorer, self.source, self.num_explore_steps = None, None, 0
            world.versions = dict.fromkeys(range(1, scenario.steps + 1), 0)
            self.storage.write(
                [row for n in range(1, scenario.steps + 1) for row in scenario.rows_of(n)]
            )

    def _add_groups(self) -> None:
        world = self.world
        scheduler = SimpleNamespace(
            begin=lambda name, requests: None, busy_s=0.0, num_hung=0, stop=lambda: None,
            where=lambda name: "engine-0", close=lambda: None,
        )  # fmt: skip
        self.groups = ClockedGroups(
            self.config,
            tasks=Tasks(world.scenario.steps, size=world.scenario.groups),
            scheduler=scheduler,
            pipeline=GroupPipeline(world.scenario, GroupSink(self.storage)),
            shelf=self.storage,
            rollouts=self.rollouts,
        )
        self.groups.parts = self
        world.passes.append(self.groups.pass_time)

    def sample(self, step: int) -> tuple[list[Any], dict[str, float]]:
        scenario = self.world.scenario
        oldest = 0 if scenario.max_age is None else max(0, step - 1 - scenario.max_age)
        source = self.source or self.storage
        rows = source.read(scenario.batch, timeout_s=1.0, min_model_version=oldest)
        if not rows:
            raise StopIteration
        return rows, {}

    def train_step(self, rows: Any, *, step: int) -> dict[str, float]:
        given = [row.info["group"] for row in rows] if self.groups is not None else list(rows)
        self.world.say("train", step, given)
        self.world.advance(self.world.scenario.seconds("train", step))
        return {}

    def synced(self, snapshot: Any) -> int:
        version = self.loop.progress.weights_version
        self.world.say("sync", version)
        return int(version)

    def record(self, role: str, metrics: Any, *, step: int) -> None:
        """Tell of explore steps, as the person sees them."""
        if role == "explorer" and "time/rollout_s" in metrics and self.groups is None:
            count = sum(one.left for n, one in self.rollouts.slots.items() if n == step)
            self.world.say("noted", step, count or len(self.world.scenario.rows_of(step)))

    def put_back_batch(self) -> None:
        self.in_hand = ()

    def trained(self, step: int, experiences: Any) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {"files": {}} | (self.groups.state_dict() if self.groups is not None else {})

    def save_progress(self, progress: Any, explorer_state: dict[str, Any]) -> None:
        self._keep(progress, explorer_state)
        self.world.say("note", progress.train_steps)

    def save(self, progress: Any, explorer_state: dict[str, Any]) -> None:
        self._keep(progress, explorer_state)
        self.world.say("save", progress.train_steps)

    def _keep(self, progress: Any, explorer_state: dict[str, Any]) -> None:
        if self.groups is not None:
            ended = explorer_state["rollouts"]
            rows = [row for row in self.storage.waiting() if has_ended(row.eid, ended)]
        else:
            rows = list(self.storage.rows)
            if self.world.scenario.mode == "both" and not self.storage.gives_again:
                rows = rows[: self.rollouts.num_rows()]
        state = {"progress": progress.state_dict(), "explorer": explorer_state}
        self.world.saved = {"state": copy.deepcopy(state), "rows": rows}

    def resume(self, loop: Any) -> None:
        """Do as ``restore`` does."""
        saved = self.world.saved
        assert saved is not None
        state = saved["state"]
        progress, rollouts = read_progress(state, self.policy), read_rollouts(state, self.policy)
        assert rollouts is not None
        self.storage.rows = deque([] if self.groups is not None else saved["rows"])
        if self.groups is not None:
            self.storage.write(saved["rows"])
        self.rollouts.load_state_dict(rollouts)
        if self.groups is not None:
            self.groups.load_state_dict(state["explorer"])
        if self.in_turns or not self.policy.in_rounds:
            progress.weights_version = progress.train_steps
        self.rollouts.weights_synced(
            version=progress.weights_version, frees=not self.policy.in_rounds
        )
        self.world.say("restored", progress.weights_version)
        loop.resume(progress, rollouts)


def _config(scenario: Scenario) -> Config:
    config = Config()
    in_groups = scenario.style == "fully_async"
    config.mode = "both" if scenario.mode == "both" else scenario.mode
    config.buffer.batch_size = scenario.groups if in_groups else 1
    config.algorithm.repeat_times = max(scenario.rows)
    config.synchronizer.sync_style = scenario.style
    config.synchronizer.sync_interval = scenario.interval
    config.synchronizer.sync_offset = scenario.offset
    config.explorer.max_inflight_batches = scenario.inflight
    config.explorer.window = scenario.window
    config.explorer.eval_interval = scenario.eval_interval
    config.explorer.eval_on_startup = scenario.eval_on_startup
    config.explorer.max_failed_ratio = 1.0
    config.trainer.total_steps = scenario.train_limit
    config.trainer.save_interval = scenario.save_interval
    return config


def start(world: World, parts: Parts) -> None:
    """Run parts, from the world's checkpoint if there is one, until they end or are broken off."""
    parts.loop = Loop(parts, ClockedRollouts(parts))  # type: ignore[arg-type]
    if world.saved is not None:
        parts.resume(parts.loop)
    parts.loop.run()


def story_of(*scenarios: Scenario, kind: type[Parts] = Parts) -> list[str]:
    """Return what happens in a run, and after each of its interrupts and kills.

    Each scenario is of one start, whether it ends or is broken off; the last is of all that follow.
    """
    world, following = World(scenarios[0]), list(scenarios[1:])
    while True:
        with suppress(Interrupted, Killed):
            start(world, kind(world))
            if not following:
                return [story_line(*line) for line in world.story]
        world.begin_again()
        world.scenario = following.pop(0) if following else world.scenario
