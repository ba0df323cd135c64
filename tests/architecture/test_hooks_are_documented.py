"""A hook ships with a heading in the docs, a test that calls it and a part that uses it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from trinity.extend.hookspecs import TrinityHooks

ROOT = Path(__file__).parents[2]
HOOKS = {name: hook for name, hook in vars(TrinityHooks).items() if name.startswith("trinity_")}


def test_a_hook_has_a_heading_that_spells_its_arguments() -> None:
    lines = (ROOT / "docs/reference/hooks.md").read_text(encoding="utf-8").splitlines()

    assert [name for name, hook in HOOKS.items() if heading(name, hook) not in lines] == []


def test_a_hook_is_called_by_a_test() -> None:
    text = text_of_all_tests()

    assert [name for name in HOOKS if name not in text] == []


def test_a_hook_says_what_it_is_for() -> None:
    assert [name for name, hook in HOOKS.items() if not inspect.getdoc(hook)] == []


def heading(name: str, function: Callable[..., object]) -> str:
    arguments = [
        argument for argument in inspect.signature(function).parameters if argument != "self"
    ]
    return f"### {name}({', '.join(arguments)})"


def text_of_all_tests() -> str:
    here = Path(__file__)
    folders = [*ROOT.glob("packages/*/tests"), *ROOT.glob("plugins/*/tests"), ROOT / "tests"]
    files = [path for folder in folders for path in folder.rglob("*.py") if path != here]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)
