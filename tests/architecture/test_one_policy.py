"""When weights move is told in one place: nothing else looks at the name of a sync style."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "packages/trinity-core/src/trinity"
MAY_READ_THE_STYLE = {"common/sync_policy.py", "common/config/synchronizer.py"}
NAMES = re.compile(r"\b(fixed|explorer_driven|trainer_driven|fully_async)\b")
NAMES_NO_STYLE = ("runtime/loop.py", "runtime/schedule.py")


def reads_of_the_style(source: str) -> list[int]:
    """Return the lines that read an attribute ``sync_style``, by ``getattr`` too."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        is_read = isinstance(node, ast.Attribute) and node.attr == "sync_style"
        is_asked = isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr"
        given = node.args[1:2] if isinstance(node, ast.Call) else []
        named = [one.value for one in given if isinstance(one, ast.Constant)]
        if is_read or (is_asked and named == ["sync_style"]):
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("style = config.synchronizer.sync_style", [1]),
        ("\nif self._sync.sync_style == 'a': pass", [2]),
        ("getattr(sync, 'sync_style')", [1]),
        ("message = 'set synchronizer.sync_style'", []),
        ("policy_of(config).style", []),
        ("class A:\n    sync_style: str = ''", []),
    ],
)
def test_a_read_of_the_style_is_found(code, lines) -> None:
    assert reads_of_the_style(code) == lines


def test_only_the_policy_reads_the_style() -> None:
    found = {}
    for path in sorted(CORE.rglob("*.py")):
        name = path.relative_to(CORE).as_posix()
        lines = reads_of_the_style(path.read_text(encoding="utf-8"))
        if lines and name not in MAY_READ_THE_STYLE:
            found[name] = lines

    assert not found, "ask policy_of(config) of common/sync_policy.py instead"


@pytest.mark.parametrize("name", NAMES_NO_STYLE)
def test_the_loop_and_its_schedule_name_no_style(name) -> None:
    text = (CORE / name).read_text(encoding="utf-8")
    named = [line for line in text.splitlines() if NAMES.search(line)]

    assert named == [], "what a style does differently is a field or a method of SyncPolicy"


def test_a_style_is_named_as_a_whole_word() -> None:
    assert NAMES.search("# with fixed, the last batch")
    assert not NAMES.search("prefixed")
