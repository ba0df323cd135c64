"""No two modules need each other: each can be read, and imported, after what it stands on."""

from __future__ import annotations

import pytest

grimp = pytest.importorskip("grimp", reason="python -m pip install -e .[dev]")

PACKAGES = (
    "extend",
    "common",
    "algorithm",
    "explorer",
    "engines",
    "buffer",
    "trainer",
    "synchronizer",
    "monitor",
    "runtime",
    "cli",
)


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Return what each module imports, inside functions too, but for annotations."""
    graph = grimp.build_graph("trinity", exclude_type_checking_imports=True)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def leaves_taken_away(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the modules that stand on themselves, and those between: nothing if there are none.

    >>> leaves_taken_away({"a": {"b"}, "b": {"a"}, "c": set()})
    {'a': {'b'}, 'b': {'a'}}
    """
    left = {name: needed & imports.keys() for name, needed in imports.items()}
    while leaves := {name for name, needed in left.items() if not needed}:
        left = {name: needed - leaves for name, needed in left.items() if name not in leaves}
    return left


def test_two_modules_that_import_each_other_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}

    assert sorted(leaves_taken_away(imports)) == ["a", "b", "c"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_no_circle(package: str, imports: dict[str, set[str]]) -> None:
    inside = {
        name: needed
        for name, needed in imports.items()
        if name == f"trinity.{package}" or name.startswith(f"trinity.{package}.")
    }

    assert leaves_taken_away(inside) == {}
