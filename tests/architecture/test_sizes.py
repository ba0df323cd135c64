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


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of each function, its docstring included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_a_file_fits_in_600_lines_and_a_function_in_60() -> None:
    too_long = {}
    for path in python_files():
        num_lines = len(path.read_text(encoding="utf-8").splitlines())
        if num_lines > MAX_FILE_LINES:
            too_long[str(path.relative_to(ROOT))] = num_lines
        for name, length in functions(path):
            if length > MAX_FUNCTION_LINES:
                too_long[f"{path.relative_to(ROOT)}: {name}"] = length

    assert too_long == {}
