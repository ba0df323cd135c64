"""What stands for hardware that no test has is there: promise, tests, pages, sessions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows_of(name: str) -> list[list[str]]:
    lines = (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines()
    return [line.split("|") for line in lines if line and not line.startswith("#")]


def problem_of(row: list[str], *, promises: set[str], sessions: set[str]) -> str:
    """Return what a row names that is not there; empty: nothing."""
    if len(row) != 4 or not all(map(str.strip, row)):
        return "it has not four columns"
    number, _, instead, by = row
    if number not in promises:
        return f"there is no promise {number}"
    unknown = set(re.findall(r"`nox -s (\w+)`", instead)) - sessions
    if unknown:
        return f"there is no session {unknown}"
    missing = [one for one in by.split(", ") if not is_there(one)]
    if missing:
        return f"there is no {missing}"
    return "" if "::" in by else "it names no test"


def is_there(holder: str) -> bool:
    """Return whether a test, ``path::name``, or a page exists."""
    path, _, name = holder.partition("::")
    file = ROOT / path
    if not name:
        return path.endswith(".md") and file.is_file()
    if not file.is_file() or not file.name.startswith("test_"):
        return False
    found = ast.parse(file.read_text(encoding="utf-8")).body
    tests = {one.name for one in found if isinstance(one, ast.FunctionDef)}
    return name.startswith("test_") and name in tests


def known() -> dict[str, set[str]]:
    nox = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body
    return {
        "promises": {row[0] for row in rows_of("promises.txt")},
        "sessions": {one.name for one in nox if isinstance(one, ast.FunctionDef)},
    }


def test_each_row_names_a_promise_and_the_tests_and_pages_that_stand_for_it() -> None:
    rows, names = rows_of("promises_hardware.txt"), known()

    assert {row[0]: said for row in rows if (said := problem_of(row, **names))} == {}
    numbers = [int(row[0]) for row in rows]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 0


HERE = "tests/architecture/test_promises_of_hardware.py"
OWN = f"{HERE}::test_each_row_names_a_promise_and_the_tests_and_pages_that_stand_for_it"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (f"19|GPUs|counting|{OWN}", ""),
        (f"19|GPUs|counting|{OWN}, docs/promises.md", "there is no ['docs/promises.md']"),
        (f"19|GPUs|counting|{HERE}::test_gone", f"there is no ['{HERE}::test_gone']"),
        (f"19|GPUs|counting|{HERE}::is_there", f"there is no ['{HERE}::is_there']"),
        (
            "19|GPUs|counting|tests/test_gone.py::test_x",
            "there is no ['tests/test_gone.py::test_x']",
        ),
        ("19|GPUs|counting|README.md", "it names no test"),
        (f"999|GPUs|counting|{OWN}", "there is no promise 999"),
        (f"19|GPUs|`nox -s nothing`|{OWN}", "there is no session {'nothing'}"),
        ("19|GPUs|counting", "it has not four columns"),
        (f"19|GPUs||{OWN}", "it has not four columns"),
    ],
)
def test_a_row_that_names_what_is_not_there_is_found(row: str, problem: str) -> None:
    assert problem_of(row.split("|"), **known()) == problem
