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
work. No test here has a GPU: [{hardware} promises](#what-needs-hardware) speak of hardware, and
for them the last table says what was tested instead.

| number | promise | state |
|---|---|---|
"""

HARDWARE = """
## What needs hardware

From a machine with GPUs, `python -m pytest -m gpu` runs what is written for one;
[from a laptop to eight GPUs](../how-to/from-a-laptop-to-eight-gpus.md) says what to expect at each
size.

| number | promise | needs | tested instead | by |
|---|---|---|---|---|
"""


def promises() -> list[tuple[int, str, str]]:
    """Return number, piece of work and words of each promise."""
    lines = (ROOT / "docs/promises.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    return [(int(number), work, words) for number, work, words in rows]


def hardware() -> list[tuple[int, str, str, list[str]]]:
    """Return the promises that speak of hardware: number, needs, what was tested instead, by what.

    By what: tests as ``path::name`` and pages as ``path``, both from the root.
    """
    lines = (ROOT / "docs/promises_hardware.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    return [(int(row[0]), row[1], row[2], row[3].split(", ")) for row in rows]


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
    needy = hardware()
    start = START.format(
        total=len(rows), tested=tested, open=len(rows) - tested, hardware=len(needy)
    )
    return start + "\n".join([*lines, HARDWARE.rstrip("\n"), *_needy(needy, rows)]) + "\n"


def _needy(
    needy: list[tuple[int, str, str, list[str]]], rows: list[tuple[int, str, str]]
) -> list[str]:
    """Return the rows of the table of hardware."""
    said = {number: words for number, _, words in rows}
    return [
        f"| P{number:03} | {said[number]} | {needs} | {instead} | {_by(by)} |"
        for number, needs, instead, by in needy
    ]


def _by(holders: list[str]) -> str:
    return ", ".join(f"`{one.rpartition('/')[2]}`" for one in holders)
