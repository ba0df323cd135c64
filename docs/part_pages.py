"""Write a page for each kind of component: what it is for, what it gets, and a whole one."""

from __future__ import annotations

import inspect
import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from trinity.extend import KINDS
from trinity_testing.new_command import SHAPES, files_of_a_plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.extend import Ability, Kind

SOURCE = Path(__file__).resolve().parent / "reference/parts/parts.in.toml"
TEXTS = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
NAME = "mine"


def index_page() -> str:
    """Return the page that lists the kinds which `trinity plugins new` writes."""
    rows = ["| kind | purpose | hook |", "|---|---|---|"]
    for name in SHAPES:
        rows.append(f"| [`{name}`]({name}.md) | {TEXTS[name]['what']} | `{KINDS[name].hook}` |")
    toctree = ["```{toctree}", ":hidden:", "", *SHAPES, "```"]
    return "\n".join([TEXTS["index"].strip(), "", *rows, "", *toctree, ""])


def part_page(name: str) -> str:
    """Return the page of one kind."""
    kind, text = KINDS[name], TEXTS[name]
    files = files_of_a_plugin(NAME, name)
    source = next(path for path in files if path.endswith(f"/{SHAPES[name].module}.py"))
    lines = [
        f"# Write {text['article']}\n",
        f"{text['what']} {text['when']}\n",
        f"{text['beware']}\n",
        "## Create a plugin\n",
        f"```bash\ntrinity plugins new {NAME} --kind {name}\n```\n",
        "## Interface\n",
        *kind_lines(kind),
        *member_table(kind),
        "## A complete example\n",
        f"`plugins new` writes `{source}`:\n",
        f"```python\n{files[source].rstrip()}\n```\n",
        f"The plugin module registers it:\n\n```python\n{_hook_of(files)}\n```\n",
        "A configuration names it:\n",
        f"```yaml\n{named_in_yaml(files['run.yaml'])}```\n",
        "## Check it\n",
        f"```bash\ntrinity plugins check {NAME}\ntrinity run --local --config run.yaml\n```\n",
        "[Conformance checks](../checks.md) lists the checks.",
    ]
    return "\n".join([*lines, ""])


def kind_lines(kind: Kind) -> list[str]:
    """Return what a component of the kind must be, gets, may be able to do, and is named by."""
    what = "Protocol" if kind.is_protocol else "Base class"
    paths = [setting.path.replace(".*", "[]") for setting in kind.settings]
    lines = [
        f"* Kind: `{kind.name}`. Installed ones: `trinity plugins list --kind {kind.name}`.",
        f"* {what}: `{kind.contract.replace(':', '.')}`.",
        f"* Configuration keys: {listed(paths)}.",
    ]
    own = [setting.args.replace(".*", "[]") for setting in kind.settings if setting.args]
    if kind.provided:
        fields = f" and the fields of `{kind.provided_section}`" if kind.provided_section else ""
        lines.append(
            f"* The constructor may name these arguments: {listed(kind.provided)}{fields}."
        )
    if own:
        lines.append(f"* Configuration keys of its own arguments: {listed(own)}.")
    if kind.abilities:
        lines.append("* What it may leave out, with the words of `provides`:")
        lines += [
            f"  * `{one.word}`{_names_of(one)}: {ability_text(kind, one)}" for one in kind.abilities
        ]
    return [*lines, ""]


def member_table(kind: Kind) -> list[str]:
    """Return what the contract has, each with the first line of its docstring."""
    contract = kind.base()
    rows = ["| member | description |", "|---|---|"]
    for member in kind.members():
        found = inspect.getattr_static(contract, member, None)
        text = (
            inspect.getdoc(found)
            if callable(found) or isinstance(found, property | cached_property)
            else None
        )
        if text and not member.startswith("_" * (1 if member != "__call__" else 3)):
            rows.append(f"| `{member}{_signature(found)}` | {plain(text).splitlines()[0]} |")
    return [*rows, ""] if len(rows) > 2 else []


def ability_text(kind: Kind, ability: Ability) -> str:
    """Return what an ability is, what it needs, and what happens without it."""
    if ability.argument:
        return ability.meaning or f"its constructor takes `{ability.argument}`."
    if ability.meaning:
        return ability.meaning
    text = plain(inspect.getdoc(getattr(kind.base(), ability.members[0])) or "")
    first, *others = [" ".join(part.split()) for part in text.split("\n\n")]
    return " ".join([first, *(part for part in others if "Without it" in part)])


def _names_of(ability: Ability) -> str:
    names = [name for name in (*ability.members, ability.attribute) if name]
    return f" ({listed(names)})" if names and names != [ability.word] else ""


def plain(text: str) -> str:
    """Return a docstring as Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))


def listed(words: Sequence[str]) -> str:
    """Return the words as code, with commas."""
    return ", ".join(f"`{word}`" for word in words)


def named_in_yaml(text: str) -> str:
    """Return of a configuration what names the part: its path, and nothing beside it."""
    kept = _kept(yaml.safe_load(text.replace("project: mine\n", "")))
    return str(yaml.safe_dump(kept, sort_keys=False))


def _kept(value: object) -> object:
    if isinstance(value, dict):
        kept = {key: _kept(entry) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if entry is not None} or None
    if isinstance(value, list):
        return [entry for entry in map(_kept, value) if entry is not None] or None
    return value if value is True or value == NAME else None


def _hook_of(files: dict[str, str]) -> str:
    source = next(text for path, text in files.items() if path.endswith("/plugin.py"))
    return source[source.index("@hookimpl") :].rstrip()


def _signature(found: object) -> str:
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    if isinstance(found, property | cached_property) or not callable(found):
        return ""
    parameters = inspect.signature(found).parameters.values()
    names = [_written(one) for one in parameters if one.name not in {"self", "cls"}]
    return f"({', '.join(names)})"


def _written(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    return stars.get(parameter.kind, "") + parameter.name
