"""Flame graphs of a run that goes on: which processes are sampled, and what is said of the rest."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trinity_debug import flame_graphs
from typer.testing import CliRunner

DRIVING = """
import sys
from pathlib import Path
from trinity.runtime.record.lock import run_lock


def drives_a_run():
    while True:
        sum(range(1000))


with run_lock(Path(sys.argv[1]), say=print):
    print("ready", flush=True)
    drives_a_run()
"""
TRAINING = """
def trains_a_model():
    while True:
        sum(range(1000))


print("ready", flush=True)
trains_a_model()
"""
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def going_on(tmp_path):
    """Return the directory of a run: its driver, and a room that says of itself what Ray does."""
    code, run = tmp_path / "driving.py", tmp_path / "run"
    run.mkdir()
    code.write_text(DRIVING)
    commands = [[sys.executable, str(code), str(run)], ["ray::Room.call", "-c", TRAINING]]
    processes = [
        subprocess.Popen(command, executable=sys.executable, stdout=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        _log(run, room=processes[1].pid)
        yield run, [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _log(run, *, room):
    """Write what a run over Ray logs of its rooms, and what looks like it."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    here = platform.node()
    rooms = [
        (now, "trainer", here, 4_000_000),  # of an earlier start, and gone
        (now, "trainer", here, room),
        (now, "engine-0", "another-host", room),
        (now, "engine-1", here, os.getpid()),  # the number is another program's by now
        ("2025-01-02 03:04:05", "engine-2", here, room),  # and this one another room's
    ]
    lines = [
        f"{told},678 INFO trinity.runtime.ray.cluster: {name} started: node {host}, process {pid}, "
        f"build 1 s\n"
        for told, name, host, pid in rooms
    ]
    (run / "trinity.log").write_text("".join(lines))


def profile(run, *arguments):
    from trinity.cli.main import app

    return CliRunner().invoke(app, ["perf", str(run), "--profile", *arguments])


def test_the_driver_and_the_rooms_of_a_run_on_this_machine_are_found(going_on) -> None:
    run, (driver, room) = going_on

    assert flame_graphs.processes_of(run) == {"driver": driver, "trainer": room}
    stage = run / "sft"
    stage.mkdir()
    assert flame_graphs.processes_of(stage) == {"driver": driver, "trainer": room}


@pytest.mark.skipif(shutil.which("py-spy", path=PATH) is None, reason=flame_graphs.INSTALL)
@pytest.mark.acceptance
def test_each_process_gets_a_flame_graph(going_on) -> None:
    run, _ = going_on

    ended = profile(run, "--seconds", "1")

    if "may not look into" in ended.output:
        pytest.skip("this user may not sample other processes")
    assert ended.exit_code == 0, ended.output
    (folder,) = (run / "profile").iterdir()
    assert ended.output == f"driver: {folder}/driver.svg\ntrainer: {folder}/trainer.svg\n"
    assert "drives_a_run" in (folder / "driver.svg").read_text()
    assert "trains_a_model" in (folder / "trainer.svg").read_text()


def test_without_py_spy_the_line_that_installs_it_is_printed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(flame_graphs.shutil, "which", lambda *_, **__: None)

    assert str(profile(tmp_path).exception) == (
        "--profile needs py-spy, which is not installed. Run: python -m pip install py-spy"
    )


def test_a_run_that_is_over_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(flame_graphs.shutil, "which", lambda *_, **__: "py-spy")

    assert "no process on this machine has" in str(profile(tmp_path).exception)
    assert not (tmp_path / "profile").exists()


def test_a_sampler_that_writes_nothing_says_why(going_on, monkeypatch, tmp_path) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho 'Error: Permission Denied: try sudo' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    ended = profile(going_on[0], "--seconds", "1")

    assert ended.exit_code == 1
    assert "driver: this user may not look into that process" in ended.output
    assert not (going_on[0] / "profile").exists()


def test_calls_of_the_same_second_write_beside_each_other(going_on, monkeypatch, tmp_path) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\nfor last; do :; done\necho svg > "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(flame_graphs.time, "strftime", lambda _: "20260102-030405")

    ended = [profile(going_on[0], "--seconds", "1") for _ in range(2)]

    assert [one.exit_code for one in ended] == [0, 0]
    names = sorted(folder.name for folder in (going_on[0] / "profile").iterdir())
    assert names == ["20260102-030405", "20260102-030405-2"]
    (going_on[0] / "profile" / "20260102-030405-3").write_text("")
    third = profile(going_on[0], "--seconds", "1")
    assert "a file is in its place. Let this user write" in str(third.exception)


def test_who_has_a_run_and_may_not_be_read_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(flame_graphs.shutil, "which", lambda *_, **__: "py-spy")
    (tmp_path / "run.lock").mkdir()

    ended = profile(tmp_path)

    assert f"{tmp_path}/run.lock cannot be read: Is a directory" in str(ended.exception)
