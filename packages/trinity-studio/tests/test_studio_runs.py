"""Runs that the studio starts: they outlive it, are known again, and stop as by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from trinity.errors import ConfigError
from trinity.runtime.record.lock import Owner, owners
from trinity_studio.studio.runs import StudioRun, _unused, runs_below, start

WAIT_S = 30.0
ALL_OF_US = json.dumps({"host": os.uname().nodename, "pid": 0, "started": "", "since": ""})


def wait_until(holds: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


STARTER = """
import sys
from pathlib import Path
from trinity_studio.studio.runs import StudioRun, _launch
run = StudioRun(directory=Path(sys.argv[1]))
run.config.parent.mkdir(parents=True)
_launch(run, ["view", sys.argv[2], "--port", "0"])
"""


def test_a_run_outlives_the_studio_and_stops_as_by_ctrl_c_though_that_was_deaf_to_it(
    built, tmp_path
) -> None:
    run = StudioRun(directory=tmp_path / "mine")  # the viewer in its place: it is quick
    command = [sys.executable, "-c", STARTER, str(run.directory), str(built.path)]
    deaf = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    subprocess.run(command, check=True, preexec_fn=deaf)

    wait_until(lambda: "Open that address" in run.tail())
    (owner,) = run.processes()
    assert os.getsid(owner.pid) == owner.pid  # what a terminal tells its own is not for it
    with pytest.raises(ConfigError, match="Stop it first, or give the run another name"):
        start("mode: both\n", directory=run.directory, is_local=True)
    assert run.stop() == 1
    wait_until(lambda: not run.processes())
    assert run.stop() == 0


HOLDER = """
import sys, time
from pathlib import Path
from trinity.runtime.record.lock import run_lock
with run_lock(Path(sys.argv[1]), say=print):
    time.sleep(600)
"""


def test_a_run_and_the_process_that_waits_for_it_are_asked_to_stop_once(tmp_path) -> None:
    run = StudioRun(directory=tmp_path / "mine")
    run.process_file.parent.mkdir(parents=True)
    run.process_file.write_text(json.dumps(asdict(Owner.of_this_process())))
    child = subprocess.Popen([sys.executable, "-c", HOLDER, run.directory])
    wait_until(lambda: owners(run.directory))

    assert [one.pid for one in run.processes()] == [child.pid]
    assert run.stop() == 1
    child.wait(WAIT_S)


def test_a_process_that_has_the_number_of_a_dead_one_is_left_alone(tmp_path) -> None:
    run = StudioRun(directory=tmp_path / "mine")
    run.process_file.parent.mkdir(parents=True)
    owner = {"host": os.uname().nodename, "pid": os.getpid(), "started": "before", "since": ""}
    run.process_file.write_text(json.dumps(owner))

    assert run.processes() == []
    assert run.stop() == 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', ALL_OF_US])
def test_a_damaged_file_of_a_process_is_no_process(content, tmp_path) -> None:
    run = StudioRun(directory=tmp_path / "mine")
    run.process_file.parent.mkdir(parents=True)
    run.process_file.write_text(content)

    assert run.processes() == []


def test_runs_are_listed_the_last_one_first(tmp_path) -> None:
    for number, place in enumerate(["p/one", "p/group/two"]):
        file = StudioRun(directory=tmp_path / place).config
        file.parent.mkdir(parents=True)
        file.write_text("")
        os.utime(file, (number, number))

    assert [run.directory.name for run in runs_below(tmp_path)] == ["two", "one"]


def test_a_run_that_starts_anew_gets_a_directory_that_nobody_has(tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    assert _unused(tmp_path / "mine") == tmp_path / "mine"

    (tmp_path / "mine" / "run.json").write_text("{}")

    assert _unused(tmp_path / "mine").name.startswith("mine_20")


def test_a_directory_that_cannot_be_written_is_said_with_the_way_out(tmp_path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="Set checkpoint_root_dir to a folder"):
        start("mode: both\n", directory=tmp_path / "file" / "run", is_local=True)


def test_what_a_run_printed_is_shown_by_its_end(tmp_path: Path) -> None:
    run = StudioRun(directory=tmp_path)
    run.log.parent.mkdir()
    run.log.write_bytes(b"x" * 30_000 + b"\xff last\n")

    assert run.tail().endswith("\N{REPLACEMENT CHARACTER} last\n")
    assert len(run.tail()) < 21_000
