"""The page of parts: every installed component, what it does, what it takes, and into the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st
from trinity.extend import KINDS, get_manager

from trinity_studio.studio.arguments import Part, part_named
from trinity_studio.studio.document import NOTHING
from trinity_studio.studio.fields import field_at, fields_of_kind
from trinity_studio.studio.widgets import draw_field

if TYPE_CHECKING:
    from trinity_studio.studio.fields import Field
    from trinity_studio.studio.sheet import Sheet

__all__ = ["draw_parts"]

_OPERATORS = "data_processor.experience_pipeline.operators"


def draw_parts(sheet: Sheet) -> None:
    """Draw one installed part, with the keys that name it and its arguments."""
    st.header("Parts")
    st.caption("All parts of the installed plugins, from their signatures and docstrings.")
    manager = get_manager()
    left, right = st.columns(2)
    kind = left.selectbox(
        "Kind", list(KINDS), key="_kind", format_func=lambda name: name.replace("_", " ")
    )
    names = sorted({one.name for one in manager.components(kind)})
    if not kind or not names:
        return
    name = right.selectbox("Part", names, key=f"_part_of:{kind}")
    if not name:
        return
    part = part_named(kind, name)
    st.subheader(part.title)
    if part.problem:
        st.warning(part.problem)
    st.markdown(part.text or "It has no docstring.")
    _draw_arguments(part)
    for named in fields_of_kind(kind, sheet.document):
        _draw_place(sheet, named, name)
    if kind == "experience_operator":
        st.button("Add it to the pipeline", key="_use", on_click=_add_operator, args=(sheet, name))


def _draw_arguments(part: Part) -> None:
    if not part.arguments:
        st.markdown("It takes no arguments that its signature tells.")
        return
    rows = [
        {"argument": one.name, "default": one.default, "what it is": one.help}
        for one in part.arguments
    ]
    st.dataframe(rows, hide_index=True)


def _draw_place(sheet: Sheet, field: Field, name: str) -> None:
    """Draw one key that can name the part: its arguments, or a button that puts it there."""
    if sheet.document.get(field.path) != name:
        st.button(
            f"Use it as {field.path}",
            key=f"_use:{field.path}",
            on_click=_use,
            args=(sheet, field, name),
        )
        return
    st.success(f"The configuration uses it as `{field.path}`.")
    arguments = field_at(field.arguments) if field.arguments else None
    if arguments is not None:
        st.session_state.setdefault(f"open:{arguments.path}", True)
        draw_field(sheet, arguments)


def _use(sheet: Sheet, field: Field, name: str) -> None:
    """Name the part; arguments of the one before it go."""
    sheet.document.set(field.path, name)
    if field.arguments and sheet.document.get(field.arguments) is not NOTHING:
        sheet.document.remove(field.arguments)


def _add_operator(sheet: Sheet, name: str) -> None:
    operators = sheet.document.get(_OPERATORS)
    count = len(operators) if isinstance(operators, list) else 0
    sheet.document.set(f"{_OPERATORS}.{count}", {"name": name})
