"""Draw a key: its type says with what, its documentation is the help beside it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st
from trinity.extend import get_manager

from trinity_studio.studio.arguments import Part, part_in_use, part_named
from trinity_studio.studio.document import NOTHING, yaml_text
from trinity_studio.studio.fields import Field, fields_of, label_of
from trinity_studio.studio.places import draw_rows, drawer
from trinity_studio.studio.secrets import holds_secrets
from trinity_studio.studio.sheet import Sheet, changed, seed

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["draw_field", "draw_fields", "tell_field"]

_WIDE = ("arguments", "section", "list")


def draw_fields(sheet: Sheet, fields: Iterable[Field]) -> None:
    """Draw keys, the short ones side by side, sections below them."""
    fields = [one for one in fields if one.path not in sheet.drawn]
    short = [one for one in fields if one.shape not in _WIDE]
    draw_rows(short, draw=partial(draw_field, sheet), tell=partial(tell_field, sheet))
    for one in fields:
        if one.shape in _WIDE:
            draw_field(sheet, one)


def draw_field(sheet: Sheet, field: Field) -> None:
    """Draw one key, or one section with its keys; :func:`tell_field` says what is wrong with it."""
    if field.shape == "section":
        _draw_section(sheet, field)
    elif field.shape == "list":
        _draw_list(sheet, field)
    elif field.shape == "arguments":
        _draw_arguments(sheet, field)
    else:
        _draw_leaf(sheet, field)
    sheet.drawn.add(field.path)


def tell_field(sheet: Sheet, field: Field) -> None:
    """Show what is wrong with a key, below its row and as wide; a section does so inside."""
    if field.shape not in _WIDE:
        sheet.tell(field.path, below=field.shape == "yaml")


def _draw_leaf(sheet: Sheet, field: Field) -> None:
    key = f"w:{field.path}"
    value = sheet.document.get(field.path)
    common: dict[str, Any] = {
        "label": label_of(field.path),
        "key": key,
        "help": f"`{field.path}`: {field.help}" if field.help else f"`{field.path}`",
        "on_change": changed,
        "args": (field, key),
        "placeholder": _placeholder(field),
        "persist_state": "session",  # sent until the browser has drawn the widget, and says so
    }
    options = _options(field, value)
    if options:
        seed(field, key, None if value is NOTHING else _word(value))
        is_open = field.shape == "part"
        st.selectbox(options=options, index=None, accept_new_options=is_open, **common)
    elif field.shape == "integer" and (value is NOTHING or _is_integer(value)):
        seed(field, key, None if value is NOTHING else value)
        least = None if field.least is None else int(field.least)
        if value is not NOTHING and least is not None:
            least = min(least, value)  # what is too small is told, not refused
        st.number_input(value=None, min_value=least, step=1, **common)
    else:
        _draw_text(sheet, field, value, common)


def _placeholder(field: Field) -> str:
    """Return what an empty widget shows: what holds then."""
    if field.default == "to be given":
        return field.default
    return "not given" if field.default == "none" else f"default: {field.default}"


def _draw_text(sheet: Sheet, field: Field, value: Any, common: dict[str, Any]) -> None:
    text = sheet.unread[field.path][0] if field.path in sheet.unread else _as_text(field, value)
    if field.shape == "yaml" and holds_secrets(value, field.path):
        st.session_state.setdefault(f"show:{field.path}", False)
        if not st.toggle(f"Show {common['label']}, which holds secrets", key=f"show:{field.path}"):
            return
    seed(field, common["key"], text)
    if field.shape == "yaml" or "\n" in text:
        st.text_area(height=100, **common)
    else:
        st.text_input(type="password" if field.is_secret else "default", **common)


def _options(field: Field, value: Any) -> list[str]:
    """Return the words to choose from; none: the value is written."""
    if field.shape == "flag":
        words = ["true", "false"]
    elif field.shape == "part":
        words = sorted({*get_manager().names(field.kind), *field.choices})
    else:
        words = list(field.choices)
    if not words or isinstance(value, (dict, list)):
        return []
    return words if value is NOTHING or _word(value) in words else [*words, _word(value)]


def _word(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _as_text(field: Field, value: Any) -> str:
    if value is NOTHING:
        return ""
    if isinstance(value, str) and (field.shape == "text" or "${" in value):
        return value
    if isinstance(value, (dict, list)):
        return yaml_text(value).rstrip()
    return yaml_text({"value": value}).removeprefix("value: ").rstrip()


def _draw_section(sheet: Sheet, field: Field) -> None:
    with _expander(sheet, field.path, label_of(field.path), field.help) as drawn:
        if not drawn.open or field.model is None:
            return
        draw_fields(sheet, fields_of(field.model, field.path))
        sheet.tell(field.path)


def _expander(sheet: Sheet, path: str, label: str, text: str, *, part: str = "") -> Any:
    """Return a drawer: its keys are drawn once it is open; where something is wrong, it opens."""
    given = sheet.given(path)
    key, wrong = f"open:{path}", bool(sheet.problems_at(path, below=True))
    if key not in st.session_state and wrong:
        st.session_state[key] = True
    title = f"**{label}** \u00b7 {text}" if text else f"**{label}**"
    marks = [part, f"{given} given" if given else "", "something is wrong" if wrong else ""]
    return drawer(title, key=key, marks=marks, is_wrong=wrong)


def _draw_list(sheet: Sheet, field: Field) -> None:
    """Draw sections that stand one after the other, or by name; each can be taken away."""
    with _expander(sheet, field.path, label_of(field.path), field.help) as drawn:
        if not drawn.open or field.model is None:
            return
        value = sheet.document.get(field.path)
        names = list(value) if isinstance(value, dict) else []
        count = len(value) if isinstance(value, list) else 0
        for name in names or map(str, range(count)):
            path = f"{field.path}.{name}"
            with _expander(sheet, path, f"{label_of(field.path)} {name}", "") as entry:
                if not entry.open:
                    continue
                draw_fields(sheet, fields_of(field.model, path))
                st.button("Remove", key=f"remove:{path}", on_click=_remove, args=(path,))
        name = str(count)
        if field.is_named:
            name = st.text_input("Name of another one", key=f"name:{field.path}").strip()
        st.button(
            "Add one",
            key=f"add:{field.path}",
            on_click=_add,
            args=(field.path, name),
            disabled=not name,
        )
        sheet.tell(field.path)


def _remove(path: str) -> None:
    Sheet().document.remove(path)


def _add(path: str, name: str) -> None:
    document = Sheet().document
    if document.get(f"{path}.{name}") is NOTHING:
        document.set(f"{path}.{name}", {})


def _draw_arguments(sheet: Sheet, field: Field) -> None:
    """Draw what the component beside it takes; what its signature does not say is YAML."""
    name = part_in_use(sheet.document, field)
    given = sheet.document.get(field.path)
    label, marked = label_of(field.path), f"of {name}" if name else ""
    with _expander(sheet, field.path, label, "", part=marked) as drawn:
        if not drawn.open:
            return
        part = part_named(field.kind, name) if name else Part(title="", takes_any=True)
        if part.problem:
            st.warning(part.problem)
        if part.text:
            st.caption(part.text)
        fields = part.fields(field.path)
        draw_fields(sheet, fields)
        others = set(given) - {one.name for one in fields} if isinstance(given, dict) else given
        if part.takes_any or others:
            _draw_leaf(sheet, _as_yaml(field))
        elif not fields:
            st.caption("It takes none.")
        sheet.tell(field.path)


def _as_yaml(field: Field) -> Field:
    text = f"{field.help}; all of them, as YAML"
    return Field(path=field.path, shape="yaml", default=field.default, help=text)
