"""Over Ray too, a run that processes were killed of has the history of an unbroken one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from trinity.synchronizer.memfd import Memfd, machine_id

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.acceptance]

SHARED = "memfd:trinity-weights"  # as /proc shows what ipc shares
MATRIX = Path(__file__).parents[2] / "benchmarks" / "kill_matrix.py"


def the_matrix(*cells: str, options: tuple[str, ...] = ()) -> str:
    """Kill three times over Ray; return what is printed. The script alone does the whole matrix."""
    common = ["--only", "ray", "--kills", "3", "--steps", "4", "--unbroken", "local"]
    ended = subprocess.run(
        [sys.executable, MATRIX, *options, *common, "--cells", *cells],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 kills in 1 runs; 0 experiences lost, repeated or misplaced" in ended.stdout
    return ended.stdout


def test_an_engine_and_a_runner_are_replaced_and_a_lost_trainer_starts_anew() -> None:
    the_matrix("engine-0:explore", "runner-0:explore", "trainer:train")


def test_kills_of_an_agent_and_of_its_endpoint_while_it_streams_lose_nothing() -> None:
    """With an environment that has vLLM: ``--agents --engine vllm`` beside these."""
    printed = the_matrix(
        "agent:explore", "runner-0:explore", "engine-0:explore", options=("--agents",)
    )

    assert "0 processes and ports left" in printed
    assert "agent | explore, streaming" in printed


def test_kills_while_the_sides_overlap_lose_nothing() -> None:
    the_matrix("trainer:train", "trainer:explore", "driver:save", options=("--offset", "1"))


@pytest.mark.skipif(not machine_id(), reason="this system shares no sealed memory")
def test_kills_while_memory_is_shared_lose_nothing_and_leave_none_of_it() -> None:
    before = holders()
    memory = Memfd(4096, [])
    mapped = memory.mapped()
    handle, own = memory.handle, str(os.getpid())
    assert {(own, str(handle.descriptor)), (own, str(handle.inode))} <= holders() - before
    memory.close()
    del mapped
    assert holders() == before

    printed = the_matrix(
        "engine-0:sync", "trainer:sync", "trainer:train", options=("--method", "ipc")
    )

    assert "0 processes and ports left" in printed
    deadline = time.monotonic() + 30.0  # until those that were killed are gone
    while (left := holders() - before) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left


def holders() -> set[tuple[str, str]]:
    """Return who has shared weights: process, and descriptor or, where it is mapped, inode."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            lines = (process / "maps").read_text().splitlines()
            found |= {(process.name, line.split()[4]) for line in lines if SHARED in line}
        with suppress(OSError):
            for link in (process / "fd").iterdir():
                with suppress(OSError):  # it is closed by now
                    found |= {(process.name, link.name)} if SHARED in os.readlink(link) else set()
    return found
