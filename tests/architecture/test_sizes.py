"""Files and functions stay small enough to be read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
FOLDERS = ("packages", "plugins", "examples", "benchmarks", "docs", "tests")


def python_files() -> list[Path]:
    """Return our Python files, the tests among them."""
    found = [ROOT / "noxfile.py", ROOT / "conftest.py"]
    for folder in FOLDERS:
        found += sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if not {"_build", ".venv", "build"} & set(path.parts)]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of each function, its docstring included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_fits_in_400_lines_each_function_in_60(path: Path) -> None:
    num_lines = len(path.read_text(encoding="utf-8").splitlines())
    long = {name: length for name, length in functions(path) if length > MAX_FUNCTION_LINES}

    assert num_lines <= MAX_FILE_LINES
    assert long == {}
