"""What the page works on: the document, what is wrong with it, and what was drawn so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st
from trinity.errors import TrinityError

from trinity_studio.studio.document import NOTHING, Document, parsed
from trinity_studio.studio.fields import label_of
from trinity_studio.studio.joints import told_html

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity_studio.studio.fields import Field

__all__ = ["DOCUMENT", "SEEN", "Sheet", "changed", "keep", "seed"]

DOCUMENT, UNREAD, KEPT = "_document", "_unread", "_kept"
SHOWN = "_shown"  # key of a widget -> what the document said when it was last drawn
SEEN = "_seen"  # setting -> what the document said when it last followed


class Sheet:
    """One drawing of the page. The document and the texts that cannot be read outlive it.

    Args:
        problems: what is wrong, in lines, by the path that it is about.
    """

    def __init__(self, problems: dict[str, list[str]] | None = None) -> None:
        self.problems = problems or {}
        self.drawn: set[str] = set()  # paths of leaves
        self.told: set[str] = set()  # paths whose problems were shown

    @property
    def document(self) -> Document:
        """Return what is edited."""
        document: Document = st.session_state[DOCUMENT]
        return document

    @property
    def unread(self) -> dict[str, tuple[str, str]]:
        """Return texts that are no YAML, and why, by path."""
        unread: dict[str, tuple[str, str]] = st.session_state.setdefault(UNREAD, {})
        return unread

    def put(self, document: Document) -> None:
        """Edit another document from now on."""
        st.session_state[DOCUMENT] = document
        st.session_state[UNREAD], st.session_state[SEEN] = {}, {}
        st.session_state[SHOWN] = {}

    def problems_at(self, path: str, *, below: bool = False) -> list[str]:
        """Return what is wrong with a key; ``below``: with the keys of its section too."""
        found = [
            line
            for place, lines in self.problems.items()
            if place == path or (below and place.startswith(f"{path}."))
            for line in lines
        ]
        return [*found, *([self.unread[path][1]] if path in self.unread else [])]

    def tell(self, path: str, *, below: bool = False) -> None:
        """Show what is wrong with a key, under it."""
        for line in self.problems_at(path, below=below):
            st.html(told_html(label_of(path), path.rpartition(".")[2], line))
        self.told.add(path)
        if below:
            self.told |= {place for place in self.problems if place.startswith(f"{path}.")}

    def untold(self) -> Iterable[tuple[str, str]]:
        """Give the problems that no key on this page shows, with their paths."""
        for path, lines in self.problems.items():
            if path not in self.told:
                yield from ((path, line) for line in lines)

    def given(self, path: str) -> int:
        """Return how many keys the document gives at or below a path."""
        return _leaves(self.document.get(path))


def seed(field: Field, key: str, value: Any) -> None:
    """Let a widget that is about to be drawn show a value, if it does not already.

    What is set is sent to the browser, and would wipe out what a person types there just now. Where
    the widget has another value, and not the document since the last drawing, a person gave it:
    Streamlit cuts a callback short where the next change comes, and does not call it again.
    """
    shown = st.session_state.setdefault(SHOWN, {})
    if key not in st.session_state:
        if value not in (None, ""):
            st.session_state[key] = value
    elif st.session_state[key] != value:
        if key in shown and shown[key] == value:
            changed(field, key)
            return
        st.session_state[key] = value
    shown[key] = value


def keep(keys: Iterable[str]) -> None:
    """Let values outlive their widgets: Streamlit forgets those of widgets that are not drawn."""
    kept = st.session_state.setdefault(KEPT, {})
    for key in keys:
        if key in st.session_state:
            kept[key] = st.session_state[key]
        elif key in kept:
            st.session_state[key] = kept[key]


def _leaves(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return sum(map(_leaves, value))
    return int(value is not NOTHING)


def changed(field: Field, key: str) -> None:
    """Take over what a person made of a widget: the callback of every key's widget.

    An empty widget takes the key out of the file.
    """
    sheet, value = Sheet(), st.session_state[key]
    sheet.unread.pop(field.path, None)
    if value is None or (isinstance(value, str) and not value.strip()):
        sheet.document.remove(field.path)
        return
    if isinstance(value, str) and field.shape not in {"text", "word", "part"}:
        try:
            value = parsed(value)
        except TrinityError as error:
            sheet.unread[field.path] = (st.session_state[key], _reason(error))
            return
    sheet.document.set(field.path, None if value == "null" else value)


def _reason(error: TrinityError) -> str:
    return f"This is no YAML, so the file keeps what it had. {str(error).splitlines()[-1].strip()}"
