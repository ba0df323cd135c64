"""Each promise of the published documents that is due has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

# A promise that needs Ray, an environment, an agent framework or the studio has no test yet.
DUE = [10, *range(15, 27), 32, 44, *range(47, 60), *range(62, 71), *range(72, 77), *range(80, 87)]
DUE += [94, 95, 98, 113, 117, 118, 119, 121, 124, *range(128, 136), *range(138, 144), 145, 146]
DUE += [152, 159, 160, *range(1, 8), 11, 12, *range(40, 44), *range(114, 117), 126, 127]


def test_each_promise_that_is_due_has_a_test() -> None:
    sources = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    names = re.findall(r"def (test_\w+)", "\n".join(sources))

    tested = {int(number) for name in names for number in re.findall(r"P(\d{3})", name)}

    assert [f"P{number:03}" for number in DUE if number not in tested] == []
