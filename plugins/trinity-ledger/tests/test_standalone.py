"""One side of a run waits for the other, and says so when nobody is heard of any more."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace

import pytest
import torch
from trinity.algorithm.sample_strategy.strategies import (
    CheckedStrategy,
    StalenessControlSampleStrategy,
)
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity.common.ports import StorageUse, WeightSnapshot, WeightVersion
from trinity.common.sync_policy import policy_of
from trinity.errors import TrinityError
from trinity.explorer.explorer import ExploreResult
from trinity.runtime.record.rundir import RunDir
from trinity_ledger.coordinator import Coordinator
from trinity_ledger.ledger import Ledger
from trinity_ledger.membership import Member, Published
from trinity_ledger.sqlite import SqliteDatabase
from trinity_ledger.standalone import StandaloneExplorer, StandaloneStrategy, StandaloneTrainer
from trinity_ledger.storage import SqlStorage
from trinity_ledger.weights_folder import WeightsFolder

ONE = torch.ones(1)


@pytest.fixture
def side(tmp_path):
    """Return a function that makes the parts of a side; their coordinators end with the test."""
    coordinators = []

    def make(mode, *, timeout_s=60.0):
        config = Config()
        config.mode, config.buffer.batch_size, config.algorithm.repeat_times = mode, 1, 2
        config.synchronizer.sync_timeout = timeout_s
        section = ExperienceBufferConfig(storage_type="sql", path=f"{tmp_path}/ledger.db")
        config.buffer.trainer_input.experience_buffer = section
        shared = RunDir(tmp_path / "run")
        parts = SimpleNamespace(
            config=config,
            rundir=shared if mode == "train" else shared.explorer("explorer"),
            policy=policy_of(config),
            interrupt=SimpleNamespace(is_requested=False),
            display=SimpleNamespace(say=print),
        )
        parts.coordinator = Coordinator(
            parts,
            database=lambda: SqliteDatabase(tmp_path / "ledger.db"),
            weights=WeightsFolder(shared.path / "weights"),
        )
        coordinators.append(parts.coordinator)
        parts.ledger = Ledger(
            SqliteDatabase(tmp_path / "ledger.db"),
            name="",
            owner=(mode == "explore" and "explorer") or "",
        )
        return parts

    yield make
    for coordinator in coordinators:
        coordinator.close()


class Engine:
    def load_weights(self, snapshot):
        self.version = snapshot.version


class Explorer:
    def __init__(self, ledger):
        self.ledger = ledger

    def explore_step(self, step):
        rows = [Experience(tokens=[1, 2], eid=EID(f"explorer:{step}", 0, run)) for run in (0, 1)]
        self.ledger.write(rows)
        return ExploreResult(metrics={}, num_experiences=2)


class Trainer:
    version = 0

    def train_step(self, experiences, *, step):
        self.version = step
        return {"loss": 0.0}

    def snapshot(self, *, copy):
        return WeightSnapshot(version=WeightVersion(self.version), tensors={"w": torch.ones(2)})


class Strategy:
    def __init__(self, ledger):
        self.ledger = ledger

    def sample(self, step):
        claimed = self.ledger.claim(2, step=step, first=0, may_be_fewer=True)
        if not claimed:
            raise StopIteration
        return claimed, {}


def an_explorer(parts, engine=None):
    return StandaloneExplorer(
        Explorer(parts.ledger), parts.coordinator, engines=[engine or Engine()], parts=parts
    )


def a_trainer(parts):
    trainer = StandaloneTrainer(Trainer(), parts.coordinator, policy=parts.policy)
    strategy = StandaloneStrategy(
        Strategy(parts.ledger), parts.coordinator, trainer=trainer, ledger=parts.ledger, num_rows=2
    )
    return trainer, strategy


def test_the_sides_hand_each_other_experiences_and_weights(side) -> None:
    engine, explores, trains = Engine(), side("explore"), side("train")
    explorer, (trainer, strategy) = an_explorer(explores, engine), a_trainer(trains)
    for step in (1, 2):
        explorer.explore_step(step)
    for step in (1, 2):
        trainer.train_step(strategy.sample(step)[0], step=step)

    result = explorer.explore_step(3)

    assert engine.version == result.metrics["sync/model_version"] == 2
    explores.coordinator.finish()
    assert len(strategy.sample(3)[0]) == 2
    with pytest.raises(StopIteration):
        strategy.sample(4)


def test_an_explorer_ends_when_the_trainer_is_finished(side) -> None:
    explores, trains = side("explore"), side("train")
    trains.coordinator.finish()

    with pytest.raises(StopIteration):
        an_explorer(explores).explore_step(1)


@pytest.mark.parametrize(
    ("told", "state"), [("running", "finished"), ("finished", "finished before")]
)
def test_an_explorer_that_was_finished_goes_on_only_if_its_run_was_told_so(
    side, told, state
) -> None:
    explores, trains = side("explore"), side("train")
    for one in (explores, trains):
        one.coordinator.finish()
        one.coordinator.close()
    explores.rundir.create()
    status = {"mode": "explore", "status": told, "asked": [1, None, None], "train_steps": 0}
    values = {
        "stage": "", "explore_steps": 0, "trained_experiences": 0, "total_steps": 4,
        "seconds": 1.0, "first_evaluation": {}, "evaluation": {}, "buffer": {}, "error": "",
    }  # fmt: skip
    explores.rundir.write_status(values | status, mode="explore")

    assert side("explore").coordinator.trainers()[0].state == state


def test_who_is_asked_to_stop_waits_no_longer(side) -> None:
    trains = side("train")
    trains.interrupt.is_requested = True

    with pytest.raises(StopIteration):
        a_trainer(trains)[1].sample(1)


def test_a_trainer_that_nobody_explores_for_says_so(side) -> None:
    trains = side("train", timeout_s=0.5)

    with pytest.raises(TrinityError, match=r"waited .* for 2 experiences.*it has never begun"):
        a_trainer(trains)[1].sample(1)


def test_an_explorer_says_whom_it_waited_for(side) -> None:
    explores, trains = side("explore", timeout_s=0.5), side("train")
    explorer = an_explorer(explores)
    for step in (1, 2):
        explorer.explore_step(step)
    trains.coordinator.close()

    with pytest.raises(TrinityError, match=r"explorer waited .* trainer: stopped, process \d+ on"):
        explorer.explore_step(3)


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of a machine that sleeps for nothing: waits move it on."""
    now = {"monotonic": 100.0, "time": time.time()}

    def sleep(seconds):
        for name in now:
            now[name] += seconds

    own = SimpleNamespace(
        time=lambda: now["time"], monotonic=lambda: now["monotonic"], sleep=sleep, now=now
    )
    monkeypatch.setattr("trinity_ledger.coordinator.time", own)
    return own


def asked_in_order(*answers):
    """Return a function that gives one answer after the other, and the last from then on."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def a_trainer_that(says):
    """Return what a trainer says of itself, the state and the time by its own clock."""
    state, beat = says
    return [Member(name="trainer", token="t", host="far", pid=1, since=0.0, beat=beat, state=state)]


def test_a_trainer_that_was_stopped_just_now_is_waited_for(side, clock) -> None:
    explores = side("explore", timeout_s=60.0)
    says = [("working", float(second)) for second in range(300)]  # longer than sync_timeout
    told = asked_in_order(*says, ("stopped", 300.0))
    looks = asked_in_order(*[False] * 340, True)  # it comes back 30 s later

    explores.coordinator.wait(looks, what="room", of=lambda: a_trainer_that(told()))


def test_a_clock_that_is_set_or_is_another_s_makes_nobody_silent(side, clock) -> None:
    explores = side("explore", timeout_s=60.0)
    told = asked_in_order(*[("working", float(second)) for second in range(200)])

    def looks():
        clock.now["time"] += 3600.0
        return clock.now["monotonic"] > 250.0

    explores.coordinator.wait(looks, what="room", of=lambda: a_trainer_that(told()))


def test_a_trainer_that_says_the_same_for_too_long_is_not_waited_for(side, clock) -> None:
    explores = side("explore", timeout_s=60.0)

    with pytest.raises(TrinityError, match=r"explorer waited 6\d s for room"):
        explores.coordinator.wait(
            lambda: False, what="room", of=lambda: a_trainer_that(("working", 1.0))
        )


def missing_weights(parts, monkeypatch, *, back_s=0.2):
    monkeypatch.setattr("trinity_ledger.coordinator._BACK_S", back_s)
    parts.coordinator.presence.publish(Published(version=1, path="weights/v1", digest="d"))


def test_weights_that_a_living_trainer_does_not_have_there_are_named(side, monkeypatch) -> None:
    explores, _ = side("explore"), side("train")
    missing_weights(explores, monkeypatch)

    with pytest.raises(TrinityError, match=r"weights in weights/v1, .* same checkpoint_root_dir"):
        explores.coordinator.newest_weights(but=(0, ""))


def test_who_is_asked_to_stop_waits_for_no_weights(side, monkeypatch) -> None:
    explores, _ = side("explore"), side("train")
    missing_weights(explores, monkeypatch)
    explores.interrupt.is_requested = True

    with pytest.raises(StopIteration):
        explores.coordinator.newest_weights(but=(0, ""))


def test_weights_of_a_trainer_that_stopped_are_waited_for(side, monkeypatch) -> None:
    explores, trains = side("explore", timeout_s=0.8), side("train")
    missing_weights(explores, monkeypatch, back_s=0.1)
    trains.coordinator.close()

    with pytest.raises(TrinityError, match=r"waited .* for the newest weights.*trainer: stopped"):
        explores.coordinator.newest_weights(but=(0, ""))


def test_weights_that_others_replace_are_looked_for_anew(side, monkeypatch) -> None:
    explores, trains = side("explore"), side("train")
    missing_weights(explores, monkeypatch)
    looks, began = [], time.monotonic()

    def replaced():
        looks.append(1)
        is_over = time.monotonic() - began > 0.6  # three times as long as weights may be missing
        if is_over and not trains.coordinator.side.version:
            trains.coordinator.note(version=50)
            trains.coordinator.publish(
                WeightSnapshot(version=WeightVersion(50), tensors={"w": ONE})
            )
        return published() if is_over else Published(version=len(looks), path="v", digest="d")

    published = explores.coordinator.presence.published
    monkeypatch.setattr(explores.coordinator.presence, "published", replaced)
    monkeypatch.setattr("trinity_ledger.coordinator._LONGEST_LOOK_S", 0.1)

    assert explores.coordinator.newest_weights(but=(0, ""))[0].version == 50


def a_strict_trainer(parts, tmp_path, *, interval=1):
    """Return the sides of a trainer that trains nothing of older weights."""
    section = parts.config.buffer.trainer_input.experience_buffer
    storage = SqlStorage(section, path=section.path, use=StorageUse(run="", side="train"))
    strict = StalenessControlSampleStrategy(max_staleness=0)
    strict.bind({"buffer": storage}, train_batch_size=2, read_timeout_s=60.0)
    policy = replace(parts.policy, publish_every=interval)
    trainer = StandaloneTrainer(Trainer(), parts.coordinator, policy=policy)
    strategy = StandaloneStrategy(
        CheckedStrategy(strict, read_for=storage.read_for),
        parts.coordinator, trainer=trainer, ledger=parts.ledger, num_rows=2,
    )  # fmt: skip
    return trainer, strategy


def rows_of(step, version):
    eids = [EID(f"explorer:{step}", 0, run) for run in (0, 1)]
    return [Experience(tokens=[1, 2], eid=e, info={"model_version": version}) for e in eids]


def test_what_is_too_old_is_not_trained_however_late_it_is_written(side, tmp_path) -> None:
    explores, trains = side("explore"), side("train")
    trainer, strategy = a_strict_trainer(trains, tmp_path)
    explores.ledger.write(rows_of(1, 0))
    trainer.train_step(strategy.sample(1)[0], step=1)
    explores.ledger.write(rows_of(2, 0))  # begun before there were newer weights
    sampled = []
    waiting = Thread(target=lambda: sampled.append(strategy.sample(2)))
    waiting.start()
    wait_for(lambda: not trains.ledger.num_waiting())
    for step, version in ((3, 0), (4, 1)):
        explores.ledger.write(rows_of(step, version))
    waiting.join(60)

    (batch, _) = sampled[0]
    assert {row.info["model_version"] for row in batch} == {1}


def test_a_trainer_whose_rows_were_all_too_old_hears_that_it_is_to_stop(side, tmp_path) -> None:
    explores, trains = side("explore"), side("train")
    trainer, strategy = a_strict_trainer(trains, tmp_path)
    explores.ledger.write(rows_of(1, 0))
    trainer.train_step(strategy.sample(1)[0], step=1)
    explores.ledger.write(rows_of(2, 0))
    trains.interrupt.is_requested = True

    with pytest.raises(StopIteration):
        strategy.sample(2)


def test_weights_that_all_rows_are_too_old_for_are_published_early(side, tmp_path) -> None:
    explores, trains = side("explore"), side("train")
    trainer, strategy = a_strict_trainer(trains, tmp_path, interval=3)
    explores.ledger.write(rows_of(1, 0))
    trainer.train_step(strategy.sample(1)[0], step=1)
    assert trains.coordinator.presence.published() is None
    explores.ledger.write(rows_of(2, 0))
    trains.interrupt.is_requested = True
    with pytest.raises(StopIteration):
        strategy.sample(2)

    assert trains.coordinator.presence.published().version == 1


def wait_for(condition):
    limit = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)
