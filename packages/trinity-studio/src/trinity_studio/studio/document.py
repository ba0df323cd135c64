"""The YAML that the page edits: what it says, key by key, and nothing that it does not say."""

from __future__ import annotations

import copy
import re
import textwrap
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]
from trinity.common.config.check_support import with_published_names
from trinity.common.config.document import read_document
from trinity.common.config.problem import config_error

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NOTHING", "Document", "merged", "parsed", "yaml_text"]

_NUMBER = re.compile(r"[-+]?[\d._]+([eE][-+]?\d+)?")  # more of them than PyYAML quotes


class _Nothing:
    """What stands where no value does; it is false."""

    def __bool__(self) -> bool:
        return False


NOTHING: Any = _Nothing()


class Document:
    """Nested settings by dotted path; a number in a path is a place in a list.

    Args:
        values: the settings; they are copied.
        is_fresh: whether nobody's file says what it holds, so that the page's defaults go in.
        text: of the file that it was read from, with its comments; empty: of none.
    """

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        is_fresh: bool = True,
        text: str = "",
    ) -> None:
        self.values: dict[str, Any] = copy.deepcopy(dict(values or {}))
        self.is_fresh = is_fresh
        self.text = text

    @classmethod
    def read(cls, text: str, *, name: str) -> Document:
        """Return what a YAML text says, under today's names of keys; interpolations stay.

        Raises:
            ConfigError: it is no YAML, or no mapping; the message names the line.
        """
        read = read_document(text, file=name)
        if read.problems:
            raise config_error(read.problems, name=name)
        values, _, _ = with_published_names(read.values or {}, read.lines)
        return cls(values, is_fresh=False, text=text)

    def get(self, path: str) -> Any:
        """Return what stands at a path, or NOTHING."""
        value: Any = self.values
        for step in path.split("."):
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
                value = value[int(step)]
            else:
                return NOTHING
        return value

    def set(self, path: str, value: Any) -> None:
        """Put a value at a path; sections that are missing on the way are made."""
        holder: Any = self.values
        *above, last = path.split(".")
        for number, step in enumerate(above):
            below = _entry(holder, step)
            if not isinstance(below, (dict, list)):
                below = [] if [*above, last][number + 1].isdigit() else {}
                _put(holder, step, below)
            holder = below
        _put(holder, last, value)

    def remove(self, path: str) -> None:
        """Take what stands at a path away, and sections that are empty then."""
        above, _, last = path.rpartition(".")
        holder = self.get(above) if above else self.values
        if isinstance(holder, list) and last.isdigit() and int(last) < len(holder):
            del holder[int(last)]
        elif isinstance(holder, dict) and last in holder:
            del holder[last]
        is_entry = above.rpartition(".")[2].isdigit()
        if above and not is_entry and holder in ({}, []):
            self.remove(above)


def yaml_text(values: Mapping[str, Any] | list[Any]) -> str:
    """Return settings as the text of a YAML file; a text of several lines stays one."""
    plain = values if isinstance(values, list) else dict(values)
    return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def parsed(text: str) -> Any:
    """Return the value that a person means by a text, read as a YAML file is.

    >>> parsed("7"), parsed("1e-6"), parsed("[a, b]"), parsed("a: 1"), parsed("${model.model_path}")
    (7, 1e-06, ['a', 'b'], {'a': 1}, '${model.model_path}')

    Raises:
        ConfigError: it is no YAML.
    """
    document = "value:\n" + textwrap.indent(text.expandtabs(2), "  ")
    return Document.read(document, name="the text").values["value"]


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both settings in one; where both say something, ``above`` wins."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        is_deeper = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old or {}, value) if is_deeper else value
    return result


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Writes each value out where it stands: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else "'" if _NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def _entry(holder: Any, step: str) -> Any:
    if isinstance(holder, list):
        return holder[int(step)] if step.isdigit() and int(step) < len(holder) else None
    return holder.get(step)


def _put(holder: Any, step: str, value: Any) -> None:
    if not isinstance(holder, list):
        holder[step] = value
    elif int(step) < len(holder):
        holder[int(step)] = value
    else:
        holder.append(value)
