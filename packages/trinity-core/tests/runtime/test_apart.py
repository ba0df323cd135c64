"""One side of a run waits for the other, and says so when nobody is heard of any more."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from trinity.buffer.ledger.ledger import Ledger
from trinity.buffer.ledger.presence import Published
from trinity.buffer.ledger.sqlite import SqliteDatabase
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import ConfigError, TrinityError
from trinity.explorer.explorer import ExploreResult
from trinity.runtime.apart import Meeting
from trinity.runtime.apart_roles import ExplorerApart, StrategyApart, TrainerApart, meet
from trinity.runtime.ledger_of_run import database_of
from trinity.runtime.record.rundir import RunDir

ONE = torch.ones(1)


@pytest.fixture
def side(tmp_path):
    """Return a function that makes the parts of a side; their meetings end with the test."""
    meetings = []

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
            interrupt=SimpleNamespace(is_requested=False),
            display=SimpleNamespace(say=print),
        )
        parts.meeting = Meeting(parts)
        meetings.append(parts.meeting)
        parts.ledger = Ledger(
            database_of(config, rundir=parts.rundir),
            name="",
            owner=(mode == "explore" and "explorer") or "",
        )
        return parts

    yield make
    for meeting in meetings:
        meeting.close()


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
    return ExplorerApart(
        Explorer(parts.ledger), parts.meeting, engines=[engine or Engine()], parts=parts
    )


def a_trainer(parts):
    trainer = TrainerApart(Trainer(), parts.meeting, interval=1)
    strategy = StrategyApart(
        Strategy(parts.ledger), parts.meeting, trainer=trainer, ledger=parts.ledger, num_rows=2
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
    explores.meeting.finish()
    assert len(strategy.sample(3)[0]) == 2
    with pytest.raises(StopIteration):
        strategy.sample(4)


def test_an_explorer_ends_when_the_trainer_is_finished(side) -> None:
    explores, trains = side("explore"), side("train")
    trains.meeting.finish()

    with pytest.raises(StopIteration):
        an_explorer(explores).explore_step(1)


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
    trains.meeting.close()

    with pytest.raises(TrinityError, match=r"explorer waited .* trainer: stopped, process \d+ on"):
        explorer.explore_step(3)


def test_another_run_s_ledger_is_named_without_its_password(side, tmp_path, monkeypatch) -> None:
    trains, database = side("train"), SqliteDatabase(tmp_path / "other.db")
    Ledger(database, name="", run="another")
    section = trains.config.buffer.trainer_input.experience_buffer
    section.path = "postgresql://me:secret@db/runs"
    monkeypatch.setattr("trinity.runtime.apart_roles.database_of", lambda *_, **__: database)

    with pytest.raises(
        ConfigError, match=r"postgresql://me:\*\*\*@db/runs is that of run 'another'"
    ):
        meet(trains)


def missing_weights(parts, monkeypatch, *, back_s=0.2):
    monkeypatch.setattr("trinity.runtime.apart._BACK_S", back_s)
    parts.meeting.presence.publish(Published(version=1, path="weights/v1", digest="d"))


def test_weights_that_a_living_trainer_does_not_have_there_are_named(side, monkeypatch) -> None:
    explores, _ = side("explore"), side("train")
    missing_weights(explores, monkeypatch)

    with pytest.raises(TrinityError, match=r"weights in weights/v1, .* same checkpoint_root_dir"):
        explores.meeting.newest_weights(but=(0, ""))


def test_who_is_asked_to_stop_waits_for_no_weights(side, monkeypatch) -> None:
    explores, _ = side("explore"), side("train")
    missing_weights(explores, monkeypatch)
    explores.interrupt.is_requested = True

    with pytest.raises(StopIteration):
        explores.meeting.newest_weights(but=(0, ""))


def test_weights_of_a_trainer_that_stopped_are_waited_for(side, monkeypatch) -> None:
    explores, trains = side("explore", timeout_s=0.8), side("train")
    missing_weights(explores, monkeypatch, back_s=0.1)
    trains.meeting.close()

    with pytest.raises(TrinityError, match=r"waited .* for the newest weights.*trainer: stopped"):
        explores.meeting.newest_weights(but=(0, ""))


def test_weights_that_others_replace_are_looked_for_anew(side, monkeypatch) -> None:
    explores, trains = side("explore"), side("train")
    missing_weights(explores, monkeypatch)
    looks, began = [], time.monotonic()

    def replaced():
        looks.append(1)
        is_over = time.monotonic() - began > 0.6  # three times as long as weights may be missing
        if is_over and not trains.meeting.side.version:
            trains.meeting.note(version=50)
            trains.meeting.publish(WeightSnapshot(version=WeightVersion(50), tensors={"w": ONE}))
        return published() if is_over else Published(version=len(looks), path="v", digest="d")

    published = explores.meeting.presence.published
    monkeypatch.setattr(explores.meeting.presence, "published", replaced)
    monkeypatch.setattr("trinity.runtime.apart._LONGEST_LOOK_S", 0.1)

    assert explores.meeting.newest_weights(but=(0, ""))[0].version == 50
