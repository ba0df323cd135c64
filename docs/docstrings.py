"""Read what a component says of itself: its docstring, its arguments with their defaults."""

from __future__ import annotations

import inspect
import re
import types
import typing
from typing import Any, Literal

PAPER = re.compile(r"\b(\d{4}\.\d{5})\b")
SENTENCE = re.compile(r"(?:(?<=\.)|(?<=\.\)))\s+(?=[A-Z(])")


def prose(cls: type) -> list[str]:
    """Return the docstring of a class up to its sections, less the sentences on Trinity-RFT."""
    paragraphs = docstring(cls).split("\n\n")
    kept = [
        " ".join(s for s in SENTENCE.split(spaced(text)) if "Trinity-RFT" not in s)
        for text in paragraphs
    ]
    return [line for text in kept if text for line in (linked(text), "")]


def argument_table(cls: type) -> list[str]:
    """Return the arguments of a part with their defaults; empty without any."""
    comments = argument_comments(cls)
    parameters = inspect.signature(cls).parameters.values()
    hints = typing.get_type_hints(cls.__init__)
    rows = [
        f"| `{p.name}` | {shown_type(hints[p.name])} | {shown_default(p)} "
        f"| {linked(escaped(comments.get(p.name, '')))} |"
        for p in parameters
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return (
        ["| argument | type | default | what it is |\n|---|---|---|---|", *rows, ""] if rows else []
    )


def argument_comments(cls: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say about each argument."""
    comments: dict[str, str] = {}
    for base in cls.__mro__:
        text = inspect.cleandoc(base.__doc__ or "")
        found = re.search(r"^Args:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
        entries = re.findall(
            r"^    (\w+): (.*(?:\n        .*)*)", found[1] if found else "", re.MULTILINE
        )
        for name, comment in entries:
            comments.setdefault(name, spaced(comment))
    return comments


def docstring(cls: type) -> str:
    """Return the docstring of a class up to its first section."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return re.split(r"^(?:Args|Raises|Attributes):$", text, flags=re.MULTILINE)[0]


def shown_type(annotation: Any) -> str:
    """Return a type as a reader of YAML would call it."""
    if typing.get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" for word in typing.get_args(annotation))
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        return " or ".join([*map(shown_type, kinds), "none"])
    words = {float: "number", int: "integer", str: "text", bool: "true or false"}
    return words.get(annotation, f"`{annotation}`")


def shown_default(parameter: inspect.Parameter) -> str:
    """Return a default as YAML writes it."""
    words = {None: "none", True: "`true`", False: "`false`"}
    value = parameter.default
    is_word = value is None or isinstance(value, bool)
    return words[value] if is_word else f"`{value}`"


def linked(text: str) -> str:
    """Return the text with its arXiv numbers as links."""
    return PAPER.sub(r"[\1](https://arxiv.org/abs/\1)", text)


def escaped(text: str) -> str:
    """Return the text as it may stand in a table."""
    return text.replace("|", "\\|")


def spaced(text: str) -> str:
    """Return the text of a docstring as one line of Markdown."""
    return " ".join(text.replace("``", "`").split())
