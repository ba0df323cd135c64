"""What an installed part takes: read from its signature and docstring."""

from __future__ import annotations

import importlib
import inspect
import re
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import TrinityError
from trinity.extend import KINDS, get_manager

from trinity_studio.studio.fields import Field, field_at, field_of_type, fields_of

if TYPE_CHECKING:
    from trinity.extend import Component

    from trinity_studio.studio.document import Document

__all__ = ["Part", "part_in_use", "part_named"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """An installed component, as a page shows it.

    Attributes:
        title: its name and whose it is.
        text: what its docstring says, up to the arguments.
        arguments: what it takes; their paths are their names.
        takes_any: whether it may take further ones.
        problem: why it cannot be shown; "": it can.
    """

    title: str
    text: str = ""
    arguments: tuple[Field, ...] = ()
    takes_any: bool = False
    problem: str = ""

    def fields(self, path: str) -> list[Field]:
        """Return the arguments as keys below a path."""
        return [one.below(path) for one in self.arguments]


def part_named(kind: str, name: str) -> Part:
    """Return what is known of a component; a problem where nothing is."""
    try:
        component = get_manager().find(kind, name)
        cls = component.load()
    except TrinityError as error:
        return Part(title=name, problem=str(error), takes_any=True)
    title = f"{component.name} ({component.origin})"
    comments = _comments(cls)
    if component.spec.args_model:
        return Part(title=title, text=_text(cls), arguments=_of_model(component))
    parameters = [p for p in _parameters(cls) if p.name not in _given_by_the_run(component, cls)]
    stars = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    hints = _hints(cls)
    return Part(
        title=title,
        text=_text(cls) or component.spec.summary,
        arguments=tuple(
            field_of_type(
                p.name,
                hints.get(p.name, Any),
                default=p.default,
                text=comments.get(p.name, ""),
            )
            for p in parameters
            if p.kind not in stars
        ),
        takes_any=kind == "workflow" or any(p.kind in stars for p in parameters),
    )


def part_in_use(document: Document, field: Field) -> str:
    """Return the component whose arguments a key holds: given, or the algorithm's; "": unknown."""
    above = field.path.rpartition(".")[0]
    named = field_at(f"{above}.{field.part}")
    value = document.get(f"{above}.{field.part}")
    if isinstance(value, str) and value:
        return value
    if named is not None and named.default != "none":
        return named.default
    algorithm = document.get(f"{above}.algorithm_type")
    return _of_algorithm(algorithm, field.part) if isinstance(algorithm, str) else ""


def _of_algorithm(name: str, part: str) -> str:
    """Return the part that an algorithm takes by itself; "": unknown."""
    try:
        value = get_manager().load("algorithm", name).setting(part)  # type: ignore[attr-defined]
    except (TrinityError, AttributeError):  # no algorithm, or none that says so
        return ""
    return value if isinstance(value, str) else ""


def _of_model(component: Component) -> tuple[Field, ...]:
    module, _, name = (component.spec.args_model or "").rpartition(":")
    return tuple(fields_of(getattr(importlib.import_module(module), name)))


def _parameters(cls: type) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):  # made in C
        return []


def _given_by_the_run(component: Component, cls: type) -> set[str]:
    kind = KINDS[component.kind]
    given = set(kind.provided)
    if component.kind == "workflow":  # its arguments are in the task
        given |= {parameter.name for parameter in _parameters(cls)}
    return given


def _hints(cls: type) -> dict[str, Any]:
    init = vars(cls).get("__init__") or getattr(cls, "__init__", None)
    try:
        return typing.get_type_hints(init) if isinstance(init, types.FunctionType) else {}
    except (NameError, TypeError):  # names that exist for type checkers alone
        return {}


def _text(cls: type) -> str:
    """Return the docstring up to its first section."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return re.split(r"^(?:Args|Raises|Attributes|Returns):$", text, flags=re.MULTILINE)[0].strip()


def _comments(cls: type) -> dict[str, str]:
    """Return what the docstrings of a class and of its constructor say of each argument."""
    comments: dict[str, str] = {}
    for base in cls.__mro__:
        for text in (base.__doc__, getattr(vars(base).get("__init__"), "__doc__", None)):
            found = re.search(
                r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", inspect.cleandoc(text or ""), re.MULTILINE
            )
            entries = re.findall(
                r"^[ ]{4}(\w+)[^:\n]*: (.*(?:\n[ ]{8}.*)*)", found[1] if found else "", re.MULTILINE
            )
            for name, comment in entries:
                comments.setdefault(name, " ".join(comment.split()))
    return comments
