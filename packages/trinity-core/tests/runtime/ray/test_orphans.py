"""Processes of a run that was killed end with it; those of others stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from trinity.runtime.ray.orphans import MARK, ended_with_driver

TITLED = """
import time
from ray._raylet import setproctitle

setproctitle("ray::DashboardAgent")
print(flush=True)
time.sleep(60)
"""
DRIVER = """
import os, subprocess, time
from trinity.runtime.ray.orphans import ended_with_driver

with ended_with_driver() as mark:
    own = subprocess.Popen(["sleep", "60"], env=os.environ | mark, start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    print(own.pid, other.pid, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_run_has_started_over_its_ray_ends_and_nothing_else() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    own, other = map(int, driver.stdout.readline().split())
    try:
        driver.kill()
        driver.wait()

        deadline = time.monotonic() + 10
        while _is_there(own):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)
        assert _is_there(other)
    finally:
        os.kill(other, 9)
        driver.stdout.close()


def test_a_process_of_ray_has_its_mark_also_once_it_has_a_title() -> None:
    with ended_with_driver() as mark:
        command = [sys.executable, "-c", TITLED]
        agent = subprocess.Popen(command, env=os.environ | mark, stdout=subprocess.PIPE)
    try:
        agent.stdout.readline()
        own = Path("/proc", str(agent.pid))

        assert (own / "cmdline").read_bytes().startswith(b"ray::")
        assert f"{MARK}={mark[MARK]}".encode() in (own / "environ").read_bytes().split(b"\0")
    finally:
        agent.kill()
        agent.communicate()


def _is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
