"""Whoever waits for a worker hears within seconds that a process of Ray is gone."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest
from trinity.errors import ConfigError, RayLostError
from trinity.runtime.ray import ray_processes
from trinity.runtime.ray.ray_processes import RayWatch, check_ray, is_ray_lost, watched_ray


class Processes:
    """Ray's processes, as a test wants them to look."""

    def __init__(self):
        self.what_is_gone, self.is_dead, self.goes_on = "", False, threading.Event()
        self.goes_on.set()

    def gone(self):
        return self.what_is_gone

    def is_node_dead(self, *, timeout_s):
        if not self.goes_on.wait(timeout_s):
            raise TimeoutError("no answer")
        return self.is_dead


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.setattr(ray_processes, "LOOK_S", 0.05)
    return Processes()


@pytest.fixture
def watched(processes):
    """Return a block in which these processes are looked after."""

    def block(*, say=print, end=print):
        return watched_ray(
            "10.0.0.1:6379", is_own=False, say=say, end=end, processes=lambda _: processes
        )

    return block


def lost_within(limit_s: float) -> str:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            check_ray()
        except RayLostError as error:
            return str(error)
        time.sleep(0.02)
    return ""


def test_a_ray_that_is_whole_disturbs_nobody(watched) -> None:
    with watched():
        assert lost_within(0.5) == ""
        check_ray(looks=True)
        assert not is_ray_lost()
    check_ray()  # nothing is looked after any more


def test_a_process_that_is_gone_is_named_with_the_remedy(watched, processes, golden) -> None:
    with watched():
        processes.what_is_gone = "the raylet of this machine"
        text = lost_within(20.0)
        assert is_ray_lost()
    golden(text, "ray_lost")
    assert not is_ray_lost()


def test_whoever_looks_at_once_hears_it_before_the_thread_does(watched, processes) -> None:
    with watched():
        processes.what_is_gone = "the head (GCS)"
        with pytest.raises(RayLostError, match=r"has lost the head \(GCS\)\. See whether"):
            check_ray(looks=True)


def test_a_node_that_the_head_takes_for_dead_is_lost(watched, processes) -> None:
    with watched():
        processes.is_dead = True

        assert "the raylet of this machine, which the head takes for dead" in lost_within(20.0)


def test_a_head_that_does_not_answer_in_time_is_lost(watched, processes, monkeypatch) -> None:
    monkeypatch.setenv(ray_processes.LIMIT_VARIABLE, "0.5")
    processes.goes_on.clear()
    with watched():
        assert "the head (GCS), which has not answered for " in lost_within(20.0)


def test_a_run_that_does_not_come_back_from_ray_is_ended_and_told_once(
    watched, processes, monkeypatch
) -> None:
    monkeypatch.setattr(ray_processes, "GRACE_S", 0.2)
    said, ended = [], threading.Event()
    with watched(say=said.append, end=lambda line: ended.set()):
        processes.what_is_gone = "the head (GCS)"

        assert ended.wait(20.0)  # nobody asked
    assert [line.partition(". ")[0] for line in said] == [
        "Error: the Ray cluster at 10.0.0.1:6379 has lost the head (GCS)"
    ]


def test_a_run_that_ends_by_itself_is_not_ended_by_force(watched, processes, monkeypatch) -> None:
    monkeypatch.setattr(ray_processes, "GRACE_S", 0.5)
    said = []
    with watched(say=said.append, end=said.append):
        processes.what_is_gone = "the head (GCS)"
        assert lost_within(20.0)
    time.sleep(0.8)

    assert said == []


def test_a_ray_that_the_run_itself_stops_is_not_lost_however_long_it_takes(
    watched, processes, monkeypatch
) -> None:
    monkeypatch.setattr(ray_processes, "GRACE_S", 0.1)
    said = []
    with watched(say=said.append, end=said.append) as seen:
        seen.leave()
        processes.what_is_gone, processes.is_dead = "the raylet of this machine", True
        assert lost_within(0.5) == ""
        check_ray(looks=True)
    assert said == []


def test_a_ray_that_does_not_stop_is_left_and_told(watched, monkeypatch) -> None:
    monkeypatch.setattr(ray_processes, "STOP_S", 0.2)
    said, ended = [], threading.Event()
    with watched(say=said.append, end=lambda line: ended.set()) as seen:
        seen.leave()
        assert ended.wait(20.0)
    assert said == [
        "Error: the Ray cluster at 10.0.0.1:6379 has not been left within 0 s, "
        "though the run is over."
    ]


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_limit_that_is_no_time_is_refused(watched, monkeypatch, text) -> None:
    monkeypatch.setenv(ray_processes.LIMIT_VARIABLE, text)

    with pytest.raises(ConfigError, match=ray_processes.LIMIT_VARIABLE), watched():
        pass


def test_a_socket_that_nobody_listens_at_is_gone(tmp_path) -> None:
    path = str(tmp_path / "raylet")
    assert not ray_processes._listens(socket.AF_UNIX, path)  # it never was
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        assert ray_processes._listens(socket.AF_UNIX, path)
    assert os.path.exists(path)  # as a killed process leaves it
    assert not ray_processes._listens(socket.AF_UNIX, path)


def test_a_watch_says_the_first_thing_that_it_saw(processes) -> None:
    seen = RayWatch(processes, name="this Ray", limit_s=9.0, remedy="Go on.")
    processes.what_is_gone = "the head (GCS)"
    with pytest.raises(RayLostError):
        seen.look()
    processes.what_is_gone = "the raylet of this machine"

    with pytest.raises(RayLostError, match=r"^this Ray has lost the head \(GCS\)\. Go on\.$"):
        seen.look()
