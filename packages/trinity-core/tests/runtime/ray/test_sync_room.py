"""The synchronizer's room, made as any object: it passes references on and looks at none."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.errors import RoomLostError
from trinity.extend import get_manager
from trinity.runtime.ray import sync_room
from trinity.runtime.ray.room import RoomContext
from trinity.runtime.ray.sync_room import SyncRoom
from trinity.runtime.record.rundir import RunDir


class FakeEngine:
    """Notes what it is told; may be lost once, in the middle of it."""

    def __init__(self, name, log, is_lost=False):
        self.name = name
        self.log = log
        self.is_lost = is_lost
        self.version = 4

    def start(self, method, *args):
        self.log.append((self.name, method, *args))
        return self

    def result(self):
        self.log.append((self.name, "waited for"))
        if self.is_lost:
            raise RoomLostError(self.name, cause="killed")

    def call(self, method, *args):
        self.log.append((self.name, method, *args))
        return self.version


@pytest.fixture
def log():
    return []


@pytest.fixture
def engines(log):
    return {
        "engine-0": FakeEngine("engine-0", log),
        "engine-1": FakeEngine("engine-1", log, is_lost=True),
    }


@pytest.fixture
def room(engines, tmp_path, monkeypatch) -> SyncRoom:
    monkeypatch.setattr(sync_room, "find_room", lambda namespace, name: engines[name])
    config = Config()
    config.synchronizer.sync_method = "memory"
    context = RoomContext(
        name="synchronizer", config=config, rundir=RunDir(tmp_path), manager=get_manager()
    )
    return SyncRoom(context, namespace="run", num_engines=2)


def test_all_engines_begin_before_one_is_waited_for_and_get_the_reference(room, log) -> None:
    assert room.sync(4, ["a reference"]) == 4

    assert log[:3] == [
        ("engine-0", "load_weights", "a reference"),
        ("engine-1", "load_weights", "a reference"),
        ("engine-0", "waited for"),
    ]


def test_an_engine_that_is_lost_meanwhile_is_waited_for_until_it_answers(room, log) -> None:
    room.sync(4, ["a reference"])

    assert log[3:] == [("engine-1", "waited for"), ("engine-1", "version")]


def test_an_engine_that_came_back_with_older_weights_loads_these(room, log, engines) -> None:
    engines["engine-1"].version = 3

    room.sync(4, ["a reference"])

    assert log[-1] == ("engine-1", "load_weights", "a reference")


def test_an_engine_that_starts_again_is_told_the_latest_weights(room) -> None:
    before = room.latest()
    room.sync(4, ["a reference"])

    assert (before, room.latest()) == (None, (4, ["a reference"]))


def test_an_explorer_apart_hands_on_what_it_read_in_the_folder_of_the_trainer(
    engines, log, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(sync_room, "find_room", lambda namespace, name: engines[name])
    config = Config(mode="explore")
    config.synchronizer.sync_method = "checkpoint"  # between the sides
    ledger = ExperienceBufferConfig(storage_type="sql")
    config.buffer.trainer_input.experience_buffer = ledger
    context = RoomContext(
        name="synchronizer", config=config, rundir=RunDir(tmp_path), manager=get_manager()
    )

    SyncRoom(context, namespace="run", num_engines=1).sync(7, ["reference"])

    assert log == [("engine-0", "load_weights", "reference"), ("engine-0", "waited for")]
