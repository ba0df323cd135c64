"""Each promise of the published documents that is due has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = (
    HERE,
    HERE.parent / "acceptance",  # what takes minutes
    HERE.parents[1] / "plugins/trinity-agents-agentscope/tests",  # what needs AgentScope
)

DUE = range(1, 162)


def test_each_promise_that_is_due_has_a_test() -> None:
    sources = [path.read_text() for folder in FOLDERS for path in folder.glob("test_*.py")]
    names = re.findall(r"def (test_\w+)", "\n".join(sources))

    tested = {int(number) for name in names for number in re.findall(r"P(\d{3})", name)}

    assert [f"P{number:03}" for number in DUE if number not in tested] == []


def test_each_promise_stands_on_the_page() -> None:
    lines = (HERE.parents[1] / "docs/promises.txt").read_text(encoding="utf-8").splitlines()

    numbers = [int(line.partition("|")[0]) for line in lines if line and line[0] != "#"]

    assert numbers == list(range(1, 162))
