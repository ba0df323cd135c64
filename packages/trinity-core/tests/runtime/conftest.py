"""Parts that only count, for the story of a run."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from trinity.common.config import SynchronizerConfig
from trinity.common.sync_policy import policy_of
from trinity.errors import RunFailedError
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.loop import Loop
from trinity.runtime.observers import Observer
from trinity.runtime.ready import ReadyRows
from trinity.runtime.rollouts import Rollouts


class CountingStorage:
    gives_again = False

    def __init__(self) -> None:
        self.rows = []

    def read(self, count, *, timeout_s, min_model_version=0):
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def put_back(self, rows):
        self.rows = [*rows, *self.rows]

    def available(self):
        return len(self.rows)


def an_audit():
    """Return an audit that looks at nothing."""
    return SimpleNamespace(is_on=False, stepped=lambda metrics, step: metrics)


class FakeParts:
    """Parts that write down what happens to them."""

    has_evaluation = False
    stop_reason = ""
    is_in_order = False  # so that the loop does not check how old rows are

    def __init__(
        self, *, steps, per_step=4, train_batch=4, interval=1, offset=0, **settings
    ) -> None:
        self.story, self.writer = [], self
        self.in_turns = settings.pop("in_turns", True)
        self.storage = CountingStorage()
        self.num_explore_steps = self.total_steps = steps
        self.num_train_steps = settings.pop("num_train_steps", None)
        self.save_interval = settings.pop("save_interval", 0)
        self.fails_at = settings.pop("fails_at", None)
        self.train_fails_at = settings.pop("train_fails_at", None)
        self.per_step, self.train_batch = per_step, train_batch
        self.config = SimpleNamespace(
            mode="both",
            is_standalone=False,
            synchronizer=SynchronizerConfig(
                sync_interval=interval,
                sync_offset=offset,
                sync_style=settings.pop("style", "fixed"),
            ),
            explorer=SimpleNamespace(
                eval_on_startup=False,
                eval_interval=settings.pop("eval_interval", 100),
                max_inflight_batches=settings.pop("max_inflight", 2),
                window=0.0,
            ),
            buffer=SimpleNamespace(batch_size=1),
            algorithm=SimpleNamespace(repeat_times=per_step),
            trainer=SimpleNamespace(
                save_interval=self.save_interval, keep_best=None, early_stopping=None
            ),
        )
        self.policy = policy_of(self.config)
        self.rollouts = RolloutBuffer(self.policy, batch=train_batch)
        self.source = ReadyRows(self.storage, self.rollouts)
        self.in_hand, self.observers = [], []
        self.display = SimpleNamespace(
            began=lambda **_: None,
            explored=lambda *_: None,
            trained=lambda *_: None,
            evaluated=lambda *_: None,
        )
        self.interrupt = SimpleNamespace(is_requested=False)
        self.info = SimpleNamespace(stage="")
        self.explorer = self.trainer = self.strategy = self
        self.groups = self.colocated = None
        self.sync, self.audit = None, an_audit()

    def explore_step(self, step):
        if step == self.fails_at:
            raise RunFailedError("too many runs failed")
        self.story.append(f"explore {step}")
        self.storage.rows += [step] * self.per_step
        return SimpleNamespace(metrics={}, num_experiences=self.per_step)

    def sample(self, step):
        return self.source.read(self.train_batch, timeout_s=1.0), {}

    def train_step(self, experiences, *, step):
        if step == self.train_fails_at:
            raise ValueError("the loss of a plugin broke")
        self.story.append(f"train {step}: {experiences}")
        return {}

    def evaluate(self, step):
        self.story.append(f"evaluate {step}")
        return {"eval/rows/reward/mean@1": 0.5}

    def put_back_batch(self):
        batch, self.in_hand = self.in_hand, []
        if batch:
            self.source.put_back(batch)

    def snapshot(self, *, copy):
        return None

    def state_dict(self):
        return {"files": {}}

    def save_progress(self, progress, explorer_state):
        self.story.append(f"note {progress.train_steps}")

    def save(self, progress, explorer_state):
        self.story.append(f"save {progress.train_steps}")


class Syncing(FakeParts):
    def __init__(self, **settings) -> None:
        super().__init__(**settings)
        self.sync = SimpleNamespace(sync=self._note_sync)

    def _note_sync(self, snapshot):
        self.story.append("sync")
        return 0


class Evaluating(FakeParts):
    has_evaluation = True


def before(parts, name, look) -> None:
    """Let ``look(step)`` be called each time before something of the parts begins."""
    does = getattr(parts, name)

    def looking(*given, **named):
        look(named.get("step", given[0]))
        return does(*given, **named)

    setattr(parts, name, looking)


def observe(parts, record) -> None:
    """Let ``record(role, metrics, step=)`` be told of each step."""
    observer = Observer()
    observer.record = record
    parts.observers.append(observer)


def loop_of(parts) -> Loop:
    """Return a loop over parts, at the beginning."""
    return Loop(parts, Rollouts(parts))


def resumed(loop) -> Loop:
    """Return a loop that goes on where another was stopped, as after a restart."""
    parts = loop._parts
    parts.rollouts.load_state_dict(parts.rollouts.state_dict())
    again = loop_of(parts)
    progress = loop.progress
    if parts.in_turns or not parts.policy.in_rounds:
        progress.note_restored()  # the engines got the checkpoint's
    again.resume(progress, parts.rollouts.state_dict())
    return again


@pytest.fixture
def loops() -> SimpleNamespace:
    """Return what makes a loop over parts, one that goes on from another, and looks into it."""
    return SimpleNamespace(of=loop_of, resumed=resumed, before=before, observe=observe)


@pytest.fixture
def fake_parts() -> type[FakeParts]:
    """Return parts that write down what happens to them."""
    return FakeParts


@pytest.fixture
def syncing() -> type[Syncing]:
    """Return the same, which write down each sync too."""
    return Syncing


@pytest.fixture
def overlapped() -> partial[Syncing]:
    """Return the same, whose rollout steps run in a thread beside the train steps."""
    return partial(Syncing, in_turns=False)


@pytest.fixture
def quick_looks(monkeypatch) -> None:
    """Let a wait of the loop look soon whether the run is asked to stop."""
    monkeypatch.setattr("trinity.runtime.rollouts.LOOK_S", 0.02)


@pytest.fixture
def evaluating() -> type[Evaluating]:
    """Return the same with an evaluation."""
    return Evaluating
