"""Files and functions stay small enough to be read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
FOLDERS = ("packages", "plugins", "examples", "benchmarks", "docs", "tests")


def python_files() -> list[Path]:
    """Return our Python files, the tests among them."""
    found = [ROOT / "noxfile.py", ROOT / "conftest.py"]
    for folder in FOLDERS:
        found += sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if not {"_build", ".venv", "build"} & set(path.parts)]


def too_long(name: str, text: str) -> Iterator[str]:
    """Yield what of a file is longer than it may be; a docstring counts."""
    num_lines = len(text.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield f"{name} has {num_lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if num_lines > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno} {node.name} has {num_lines} lines"


def test_a_file_of_601_lines_and_a_function_of_61_are_found() -> None:
    text = "def long():\n" + "    pass\n" * 60 + "async def fits():\n" + "    pass\n" * 59

    assert list(too_long("a.py", text)) == ["a.py:1 long has 61 lines"]
    assert list(too_long("a.py", "\n" * 601)) == ["a.py has 601 lines"]


def test_a_file_fits_in_600_lines_each_function_in_60() -> None:
    found = [
        offender
        for path in python_files()
        for offender in too_long(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]

    assert not found, "\n".join(["too long:", *found])
