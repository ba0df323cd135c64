"""A run that the kernel killed for lack of memory is named by the next start."""

from __future__ import annotations

import json

import pytest
from trinity.common.memory import Memory
from trinity.runtime.record.lock import FILE_NAME, run_lock
from trinity.runtime.record.memory_record import MemoryRecord


class Shown:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.memory = ""
        self.say = self.said.append

    def show_memory(self, used: str) -> None:
        self.memory = used


@pytest.fixture
def killed(tmp_path):
    """Return a function that leaves what a killed run does, and gives the line of the next."""

    def next_line(*used: int) -> str:
        with run_lock(tmp_path, say=pytest.fail) as file:
            (readings := [Memory(used=each, limit=8_000_000_000) for each in used]).reverse()
            record = MemoryRecord(file, Shown(), read=readings.pop)
            for _ in used:
                record.look()
            owner = json.loads((tmp_path / FILE_NAME).read_text())
        owner |= {"pid": 2**22 - 1, "started": "another"}
        (tmp_path / FILE_NAME).write_text(json.dumps(owner))
        lines: list[str] = []
        with run_lock(tmp_path, say=lines.append):
            return lines[0]

    return next_line


def test_the_next_start_says_how_much_memory_a_killed_run_had(killed) -> None:
    line = killed(10**9, 7_900_000_000)

    assert "ended without saying so, at 7.9 of 8.0 GB of memory: it is" in line


def test_the_next_start_says_that_the_system_killed_a_process_for_it(killed, monkeypatch) -> None:
    counts = [3, 2]
    monkeypatch.setattr("trinity.runtime.record.memory_record.num_oom_kills", counts.pop)

    line = killed(4_000_000_000)

    assert "at 4.0 of 8.0 GB of memory; the system killed a process for lack of memory: " in line


def test_a_run_that_had_memory_enough_was_ended_by_something_else(killed) -> None:
    assert "without saying so: it is taken over" in killed(10**9, 2 * 10**9)


def test_memory_near_the_limit_is_shown_while_a_run_goes_on_and_said_once(tmp_path) -> None:
    shown = Shown()
    gigabytes = [1, 9.5, 9.6, 5]
    record = MemoryRecord(
        tmp_path / "run.memory",
        shown,
        read=lambda: Memory(used=int(gigabytes.pop(0) * 10**9), limit=10**10),
    )

    seen = []
    for _ in range(4):
        record.look()
        seen.append(shown.memory)

    assert seen == ["", "9.5 of 10.0 GB", "9.6 of 10.0 GB", ""]
    assert shown.said == ["memory: 9.5 of 10.0 GB are used; at the limit the system ends the run"]
