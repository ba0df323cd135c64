"""The text of a file that was opened, changed where its settings changed and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]
from trinity.errors import ConfigError

from trinity_studio.studio.document import Document, yaml_text
from trinity_studio.studio.kept_flow import flow_edits, flow_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["kept_text"]

Edit = tuple[int, int, str]  # first character, the one behind the last, what stands there then


class _CannotKeepError(Exception):
    """The places of a text do not tell how to change it, as where it uses an anchor."""


def kept_text(text: str, values: Mapping[str, Any]) -> str:
    """Return the settings as a changed text: comments, order and quotes of the rest stay.

    Where that would not mean the settings, as with anchors, they are written without comments.

    Args:
        text: of the file that was opened; empty: of none.
        values: what it is to say now.
    """
    plain = yaml_text(values)
    if not text.strip():
        return plain
    try:
        old = Document.read(text, name="the file").values
        if _is_same(old, values):
            return text
    except (ConfigError, RecursionError):
        return plain
    for in_parts in (True, False):  # of what stands in brackets
        try:
            changed = _changed(text, old, dict(values), in_parts=in_parts)
            if _is_same(Document.read(changed, name="the file").values, values):
                return changed
        except (ConfigError, _CannotKeepError, yaml.YAMLError, ValueError, RecursionError):
            continue
    return plain


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are, 1 being neither 1.0 nor true; keys in any order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _changed(text: str, old: dict[str, Any], new: dict[str, Any], *, in_parts: bool) -> str:
    text = text if text.endswith("\n") else f"{text}\n"
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    editor = _Editor(text, in_parts=in_parts)
    editor.change(node, old, new)
    return editor.result()


class _Editor:
    """Collects what changes where; the text has its old places until the end.

    Args:
        text: it; its last line is a whole one.
        in_parts: whether lists and mappings in brackets that hold comments are changed in parts.
    """

    def __init__(self, text: str, *, in_parts: bool) -> None:
        self._text = text
        self._in_parts = in_parts
        self._edits: list[Edit] = []

    def result(self) -> str:
        """Return the changed text."""
        text = self._text
        order = sorted(range(len(self._edits)), key=lambda one: (self._edits[one][0], one))
        for place in reversed(order):  # of two at one place, the inner comes first
            start, end, put = self._edits[place]
            text = text[:start] + put + text[end:]
        return text

    def change(self, node: yaml.Node, old: Any, new: Any) -> None:
        """Let a mapping or a list say what is new."""
        if node.flow_style:
            self._change_flow(node, old, new)
        elif isinstance(node, yaml.MappingNode):
            self._change_mapping(node, old, new)
        elif len(old) == len(new):
            for below, before, now in zip(node.value, old, new, strict=True):
                if not _is_same(before, now):
                    self._change_entry(below, before, now)
        else:
            self._change_length(node, old, new)

    def _change_flow(self, node: yaml.Node, old: Any, new: Any) -> None:
        start, end = node.start_mark.index, node.end_mark.index
        if self._in_parts and "#" in self._text[start:end]:
            self._edits += flow_edits(self._text, node, old, new, is_same=_is_same)
        else:
            self._edits.append((start, end, flow_text(new)))

    def _change_length(self, node: yaml.SequenceNode, old: list[Any], new: list[Any]) -> None:
        """Take entries out of a list, or put some in: between those that both begin and end with.

        At least one entry stays.
        """
        first = _num_shared(old, new)
        last = _num_shared(old[first:][::-1], new[first:][::-1])
        gone, come = node.value[first : len(old) - last], new[first : len(new) - last]
        if come:
            beside = node.value[first - 1] if first else node.value[0]
            start = self._line(beside, before="-")
            column = self._text.index("-", start) - start
            place = self._behind(beside) if first else start
            self._edits.append((place, place, _block(come, column)))
        for entry in gone:  # after what comes in its place: later edits are made first
            self._edits.append((self._line(entry, before="-"), self._behind(entry), ""))

    def _change_mapping(self, node: yaml.MappingNode, old: Any, new: Any) -> None:
        named = {key.value: (key, value) for key, value in node.value}
        for name, (key, value) in named.items():
            if name not in new:
                self._edits.append((self._line(key), self._behind(value), ""))
            elif name not in old or not _is_same(old[name], new[name]):
                self._change_value(key, value, old.get(name), new[name])
        added = {name: value for name, value in new.items() if name not in named}
        if added:
            end = self._behind(node.value[-1][1])
            column = node.value[0][0].start_mark.column
            self._edits.append((end, end, _block(added, column)))

    def _change_value(self, key: yaml.Node, value: yaml.Node, old: Any, new: Any) -> None:
        if value.start_mark.index < key.end_mark.index:
            raise _CannotKeepError  # an alias: it stands elsewhere
        if _is_alike(value, old, new):
            self.change(value, old, new)
            return
        start = self._text.index(":", key.end_mark.index) + 1
        end = max(start, self._end(value))
        is_block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        # What follows on a line is a comment, and stays there.
        below = (self._text.index("\n", start if is_block else end), self._text.index("\n", end))
        beside = (start, start if is_block else end)
        if _is_nested(new):
            put = f"\n{_block(new, key.start_mark.column + 2)}".rstrip("\n")
            self._edits += [(*beside, ""), (*below, put)]
        else:
            self._edits += [(*beside, f" {_scalar(new, key.start_mark.column)}"), (*below, "")]

    def _change_entry(self, node: yaml.Node, old: Any, new: Any) -> None:
        if _is_alike(node, old, new):
            self.change(node, old, new)
        elif isinstance(node, yaml.ScalarNode) and not _is_nested(new):
            put = _scalar(new, node.start_mark.column)
            self._edits.append((node.start_mark.index, self._end(node), put))
        else:
            raise _CannotKeepError

    def _line(self, node: yaml.Node, *, before: str = "") -> int:
        """Return where the line of a key begins, or of an entry of a list, behind its dash.

        The first key of an entry shares its line with the dash, and cannot go alone.
        """
        start = int(node.start_mark.index)
        line = self._text.rfind("\n", 0, start) + 1
        if self._text[line:start].strip() != before:
            raise _CannotKeepError
        return line

    def _end(self, node: yaml.Node) -> int:
        """Return where the text of a node ends; a comment behind it is none of it."""
        if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
            return self._end(node.value[-1][1])
        if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
            return self._end(node.value[-1])
        start, end = int(node.start_mark.index), int(node.end_mark.index)
        return start + len(self._text[start:end].rstrip())

    def _behind(self, node: yaml.Node) -> int:
        """Return where the line behind a node begins."""
        return self._text.index("\n", self._end(node)) + 1


def _is_nested(value: Any) -> bool:
    return isinstance(value, (dict, list)) and bool(value)


def _is_alike(node: yaml.Node, old: Any, new: Any) -> bool:
    """Return whether a node can go on holding the value, changed in parts."""
    if isinstance(node, yaml.MappingNode):
        return isinstance(old, dict) and isinstance(new, dict) and bool(old.keys() & new.keys())
    if not isinstance(node, yaml.SequenceNode) or not isinstance(new, list):
        return False
    if not isinstance(old, list) or node.flow_style:
        return isinstance(old, list)
    return len(old) == len(new) or _num_shared(old, new) + _num_shared(old[::-1], new[::-1]) > 0


def _num_shared(one: list[Any], other: list[Any]) -> int:
    """Return how many entries both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if not _is_same(a, b)), min(len(one), len(other)))


def _block(value: Any, column: int) -> str:
    lines = yaml_text(value).splitlines(keepends=True)
    return "".join(f"{' ' * column}{line}" if line.strip() else line for line in lines)


def _scalar(value: Any, column: int) -> str:
    said = yaml_text({"value": value}).removeprefix("value:").strip("\n").removeprefix(" ")
    return said.replace("\n", f"\n{' ' * column}")
