"""The synchronizer's room, made as any object: it passes references on and looks at none."""

from __future__ import annotations

import threading
import time

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.errors import ModelError, RoomLostError
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
        self.is_gone = False  # for every call
        self.fault = None  # why it could not be built

    def start(self, method, *args):
        self.log.append((self.name, method, *args))
        return self

    def result(self):
        self.log.append((self.name, "waited for"))
        if self.fault is not None:
            raise self.fault
        if self.is_lost:
            raise RoomLostError(self.name, cause="killed")

    def facts(self):
        if self.fault is not None:
            raise self.fault

    def call(self, method, *args):
        if self.is_gone:
            raise RoomLostError(self.name, cause="killed")
        if self.fault is not None:
            raise self.fault
        self.log.append((self.name, method, *args))
        if method == "load_weights":
            self.version = int(args[0].removeprefix("v"))
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


def a_room(engines, tmp_path, monkeypatch, style="fixed") -> SyncRoom:
    monkeypatch.setattr(sync_room, "find_room", lambda namespace, name: engines[name])
    config = Config()
    config.synchronizer.sync_method = "memory"
    config.synchronizer.sync_style = style
    context = RoomContext(
        name="synchronizer", config=config, rundir=RunDir(tmp_path), manager=get_manager()
    )
    return SyncRoom(context, namespace="run", num_engines=2)


@pytest.fixture
def room(engines, tmp_path, monkeypatch) -> SyncRoom:
    return a_room(engines, tmp_path, monkeypatch)


@pytest.fixture
def flying(engines, tmp_path, monkeypatch):
    """Return the room of a run with groups in flight, whose threads end with the test."""
    one = a_room(engines, tmp_path, monkeypatch, style="fully_async")
    yield one
    one.close()
    for thread in threading.enumerate():
        if thread.name.endswith("-returns"):
            thread.join(10.0)
            assert not thread.is_alive()


def test_all_engines_begin_before_one_is_waited_for_and_get_the_reference(room, log) -> None:
    assert room.sync(4, ["v4"]) == 4

    assert log[:3] == [
        ("engine-0", "load_weights", "v4"),
        ("engine-1", "load_weights", "v4"),
        ("engine-0", "waited for"),
    ]


def test_an_engine_that_is_lost_meanwhile_is_waited_for_until_it_answers(room, log) -> None:
    room.sync(4, ["v4"])

    assert log[3:] == [("engine-1", "waited for"), ("engine-1", "version")]


def test_an_engine_that_came_back_with_older_weights_loads_these(room, log, engines) -> None:
    engines["engine-1"].version = 3

    room.sync(4, ["v4"])

    assert log[-1] == ("engine-1", "load_weights", "v4")


def test_an_engine_that_starts_again_is_told_the_latest_weights(room) -> None:
    before = room.latest()
    room.sync(4, ["v4"])

    assert (before, room.latest()) == (None, (4, ["v4"]))


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


def test_with_groups_in_flight_a_lost_engine_is_not_waited_for_and_catches_up(
    flying, log, engines
) -> None:
    lost = engines["engine-1"]
    lost.is_gone, lost.version = True, 3

    assert flying.sync(4, ["v4"]) == 4
    assert flying.sync(5, ["v5"]) == 5
    assert ("engine-0", "load_weights", "v5") in log
    lost.is_gone = False
    limit = time.monotonic() + 10.0
    while lost.version != 5 and time.monotonic() < limit:
        time.sleep(0.01)

    assert lost.version == 5


def test_with_groups_in_flight_one_that_cannot_be_built_again_is_done_without(
    flying, engines, caplog
) -> None:
    engines["engine-1"].fault = ModelError("no memory is left")

    assert flying.sync(4, ["v4"]) == 4
    flying.close()
    assert "engine-1 is lost: weights go to the others" in caplog.text


def test_with_groups_in_flight_the_last_engine_is_waited_for(flying, engines, log) -> None:
    engines["engine-0"].is_lost = True

    flying.sync(4, ["v4"])

    assert log[-2:] == [("engine-0", "version"), ("engine-1", "version")]


def test_an_engine_that_refuses_the_weights_ends_the_run(flying, engines, monkeypatch) -> None:
    engines["engine-1"].fault = ModelError("of another model")
    monkeypatch.setattr(FakeEngine, "facts", lambda self: None)

    with pytest.raises(ModelError, match="of another model"):
        flying.sync(4, ["v4"])
