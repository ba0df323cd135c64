"""What a part can do is said by words, once; nobody finds it out by asking for a name."""

from __future__ import annotations

import ast
from pathlib import Path

from trinity.extend import KINDS, get_manager

SOURCE = Path(__file__).parents[2] / "packages/trinity-core/src/trinity"
ROOMS = ("runtime", "explorer", "engines", "buffer", "trainer", "synchronizer", "monitor")
WORDS = {
    member
    for kind in KINDS.values()
    for ability in kind.abilities
    for member in ([ability.argument] if ability.argument else [])
} | {
    "waiting", "state_dict", "load_state_dict", "put_back", "drop_older", "counts", "gives_again",
    "__len__", "busy_s", "module", "model", "flush", "feedback", "num_read", "run_began",
}  # fmt: skip


def test_the_rooms_ask_no_part_by_hasattr_or_getattr_what_it_can_do() -> None:
    files = [file for room in ROOMS for file in sorted((SOURCE / room).rglob("*.py"))]
    files += sorted((SOURCE / "algorithm" / "sample_strategy").glob("*.py"))
    found = [
        f"{file.relative_to(SOURCE)}:{call.lineno} asks for {call.args[1].value}"
        for file in files
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in {"hasattr", "getattr"}
        and isinstance(call.args[1], ast.Constant)
        and call.args[1].value in WORDS
    ]

    assert found == []


def test_the_built_in_parts_say_truly_what_they_can_do() -> None:
    own = [c for c in get_manager().components() if c.origin.plugin == "builtin"]

    wrong = [
        f"{component.kind}/{component.name}: {ability.word}"
        for component in own
        for ability in KINDS[component.kind].abilities
        if ability.word in component.spec.provides
        and KINDS[component.kind].lacks(component.load(), ability)
    ]
    assert wrong == []
