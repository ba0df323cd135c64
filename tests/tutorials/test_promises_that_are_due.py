"""Each promise of the published documents that is due has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = (HERE, HERE.parent / "acceptance")  # what takes minutes is there

# A promise that needs GPUs, an agent framework or the studio has no test yet.
DUE = [*range(1, 60), *range(62, 71), *range(72, 77), *range(80, 87), 94, 95, 98]
DUE += [*range(112, 122), *range(124, 136), *range(138, 144), 145, 146, 152, 159, 160]


def test_each_promise_that_is_due_has_a_test() -> None:
    sources = [path.read_text() for folder in FOLDERS for path in folder.glob("test_*.py")]
    names = re.findall(r"def (test_\w+)", "\n".join(sources))

    tested = {int(number) for name in names for number in re.findall(r"P(\d{3})", name)}

    assert [f"P{number:03}" for number in DUE if number not in tested] == []
