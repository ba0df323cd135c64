"""A run of groups over a scripted engine, driven as the loop drives it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

from trinity.common.config import Config
from trinity.common.experience import Experience
from trinity.common.sync_policy import policy_of
from trinity.common.workflows import Workflow
from trinity.errors import EnvError
from trinity.explorer.continuous import ContinuousExplorer
from trinity.explorer.explorer import ExploreResult
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.explorer.scheduler_builder import build_scheduler
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

LIMIT_S = 20.0


class Held(Workflow):
    """Answers once the test lets it: its question is its name in ``doors``."""

    doors: dict[str, threading.Event] = {}  # noqa: RUF012 -- of one test at a time
    fails: set[str] = set()  # noqa: RUF012 -- the same

    def run(self):
        name = self.task.raw_task["question"]
        if name in self.doors:
            self.doors[name].wait(LIMIT_S)
        if name in self.fails:
            raise EnvError("the shop is closed")
        return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0)]


class Stream:
    """Eight tasks, or one after the other without an end, and where they stand."""

    num_steps = 4
    is_endless = False

    def __init__(self):
        self.position, self.fed = 0, []

    def _task(self, row):
        task = a_task(f"{row}", workflow=Held, repeat_times=2)
        task.index = {"taskset_id": 0, "index": row}
        return task

    def again(self, index):
        return self._task(index["index"])

    def read(self, count):
        if self.position >= 8 and not self.is_endless:
            raise StopIteration
        last = self.position + count
        first, self.position = self.position, last if self.is_endless else min(8, last)
        return [self._task(row) for row in range(first, self.position)]

    def feedback(self, outcomes):
        self.fed.append(outcomes)

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Groups:
    """What was written and consumed; stands for pipeline and shelf."""

    def __init__(self):
        self.written, self.consumed = [], []

    def process(self, exps):
        self.written.append(f"{exps[0].eid.batch}/{exps[0].eid.task}")
        return {"experience_pipeline/num_written": float(len(exps))}

    def feedback(self):
        return {}

    def take(self, groups):
        self.consumed.append(list(groups))
        return 2 * len(groups)

    def close(self):
        pass


class HeldOut:
    """An evaluation of one task, which is held by its name."""

    name, repeat_times = "held_out", 1

    def tasks(self):
        return [a_task("held_out", workflow=Held)]


@dataclass
class Run:
    """An explorer with its groups, driven as the loop drives it."""

    explorer: ContinuousExplorer
    buffer: RolloutBuffer
    stream: Stream
    groups: Groups

    def batch(self, step: int, *, limit_s: float = LIMIT_S) -> ExploreResult | None:
        """Take a whole batch once it is ready, or what is left; None: it is not in time.

        Raises:
            StopIteration: all groups were consumed, and no more will begin.
        """
        until = time.monotonic() + limit_s
        while True:
            self.explorer.check()
            self.explorer.admit(for_step=step)
            with self.buffer.changed:
                num_ready, is_out = len(self.buffer.ready_groups()), self.explorer.is_out
                if num_ready == self.buffer.batch or (is_out and num_ready):
                    break
                if is_out:
                    self.explorer.tell_the_rest()
                    raise StopIteration
                rest_s = until - time.monotonic()
                if rest_s <= 0:
                    return None
                self.buffer.changed.wait(min(rest_s, 0.1))
        return self.explorer.take(step)

    def synced(self, version: int) -> None:
        """Give the rollouts weights of so many train steps."""
        with self.buffer.changed:
            self.buffer.weights_synced(version=version)
        self.explorer.admit(for_step=version + 1)

    def saved(self) -> dict:
        """Return the state of the explorer, as a checkpoint holds it."""
        return json.loads(json.dumps(self.explorer.state_dict()))

    def resume(self, state: dict, *, version: int) -> None:
        """Go on from there, with weights of so many train steps."""
        self.buffer.load_state_dict(state["rollouts"])
        self.explorer.load_state_dict(state)
        self.synced(version)


def begin_run(*, held=(), fails=(), max_inflight_batches=2, window=0.0, **settings) -> Run:
    """Return one with two groups a batch; the tasks ``held`` wait for their doors."""
    Held.doors = {str(row): threading.Event() for row in held}
    Held.fails = {str(row) for row in fails}
    config = Config(mode="both")
    config.synchronizer.sync_style = "fully_async"
    config.buffer.batch_size = 2
    config.explorer.max_inflight_batches = max_inflight_batches
    config.explorer.window = window
    config.explorer.max_timeout, config.explorer.max_retry_times = LIMIT_S, 0
    for name, value in settings.items():
        setattr(config.explorer, name, value)
    engine = ScriptedEngine("46", repeat=True)
    stream, groups = Stream(), Groups()
    buffer = RolloutBuffer(policy_of(config), batch=2)
    explorer = ContinuousExplorer(
        config,
        tasks=stream,
        scheduler=build_scheduler(config, engines=[engine], model=model_over(engine)),
        pipeline=groups,
        shelf=groups,
        rollouts=buffer,
    )
    return Run(explorer, buffer, stream, groups)
