"""The page of promises: each with the tests named after it, or the work that it waits for."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests/tutorials", "tests/acceptance", "plugins", "packages")
WORK = {
    "agents": "agents: engines' clients, AgentScope",
    "environments": "environments",
    "maths": "algorithms",
    "scale": "scale: several GPUs and machines",
    "spine": "the core",
    "studio": "the studio",
}
START = """# Promises

The published documents of Trinity-RFT promise {total} things, from import paths to results. Each
has a number here. A test that holds a promise carries its number in its name (`test_P047_...`), so
this page is made from the tests that are there: {tested} are tested, {open} wait for a piece of
work or for hardware.

| number | promise | state |
|---|---|---|
"""


def promises() -> list[tuple[int, str, str]]:
    """Return number, piece of work and words of each promise."""
    lines = (ROOT / "docs/promises.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    return [(int(number), work, words) for number, work, words in rows]


def tests_of_promises() -> dict[int, list[str]]:
    """Return the tests of each promise, as ``file::test``."""
    found: dict[int, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")):
                for number in re.findall(r"P(\d{3})(?!\d)", name):
                    found.setdefault(int(number), []).append(f"{path.name}::{name}")
    return found


def promises_page() -> str:
    """Return the page."""
    tests, rows = tests_of_promises(), promises()
    lines = []
    for number, work, words in rows:
        own = tests.get(number)
        state = f"tested: `{own[0]}`" if own else f"open: with {WORK[work]}"
        more = f" and {len(own) - 1} more" if own and len(own) > 1 else ""
        lines.append(f"| P{number:03} | {words} | {state}{more} |")
    tested = sum(number in tests for number, _, _ in rows)
    start = START.format(total=len(rows), tested=tested, open=len(rows) - tested)
    return start + "\n".join(lines) + "\n"
