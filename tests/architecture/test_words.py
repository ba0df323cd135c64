"""The core's names are those of the field (GLOSSARY.md), and no class name means two things."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

CORE = Path(__file__).parents[2] / "packages/trinity-core/src/trinity"
# Words of the first versions, and what stands for them now.
OLD_WORDS = {
    **dict.fromkeys(("room", "rooms"), "worker, component, capacity"),
    **dict.fromkeys(("beat", "beats"), "heartbeat"),
    **dict.fromkeys(("silent", "silence", "silences"), "unresponsive"),
    **dict.fromkeys(("lane", "lanes"), "request queue"),
    "apart": "standalone, separate",
    "backlog": "request queue",
    "endings": "stop conditions",
    "flights": "active groups",
    "luggage": "payload by value",
    "meeting": "rendezvous, coordinator",
    "outbox": "staging buffer",
    "passport": "worker spec",
    "patience": "restart policy",
    "piece": "request group",
    "presence": "membership",
    "remarks": "one-time warnings",
    "said": "reported, served",
    "scattering": "broadcast",
    "sealed": "memfd",
    "shelf": "storage",
    "shipment": "bucket, manifest",
    "spreading": "sharding",
    "telling": "all_gather_json",
    "uncollected": "gc_paused",
    "undue": "not ready",
    "whose": "owner",
}


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake_case or CamelCase."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names_of(path: Path) -> Iterator[str]:
    """Yield the names of a module, its classes and its functions."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def test_modules_classes_and_functions_have_no_word_of_the_first_versions() -> None:
    found = {
        f"{path.relative_to(CORE)}: {name}": OLD_WORDS[word]
        for path in sorted(CORE.rglob("*.py"))
        for name in names_of(path)
        for word in words_of(name) & set(OLD_WORDS)
    }

    assert found == {}, "use these words instead, or the field's own; see GLOSSARY.md"


def test_no_class_name_is_used_twice() -> None:
    places = defaultdict(list)
    for path in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(CORE)))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}
