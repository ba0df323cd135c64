"""Rows and drawers that stay what they are in the browser, whatever comes and goes beside them.

There, Streamlit knows a block by its number among its siblings, and a drawer by its title. One that
gets another number or title is made anew: it loses the focus, and what a person types into it just
now. So what is told of a row has a place whether anything is told or not, a setting that is hidden
keeps its place, and the title of a drawer stays: what changes is written behind it by style.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import streamlit as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

__all__ = ["draw_rows", "drawer"]

COLUMNS = 2
Item = TypeVar("Item")


def draw_rows(
    items: Sequence[Item],
    *,
    draw: Callable[[Item], None],
    tell: Callable[[Item], None],
    is_hidden: Callable[[Item], bool] = lambda _: False,
) -> None:
    """Draw settings side by side, and below each row what is told of them.

    Args:
        items: the settings.
        draw: draws one.
        tell: tells what is wrong with one.
        is_hidden: tells whether one is left out now; those beside and below it stay in their place.
    """
    with st.container():
        for start in range(0, len(items), COLUMNS):
            row = items[start : start + COLUMNS]
            shown = [not is_hidden(item) for item in row]
            columns = st.columns(COLUMNS) if any(shown) else [st.container()] * COLUMNS
            for column, item, is_shown in zip(columns, row, shown, strict=False):
                if is_shown:
                    with column:
                        draw(item)
            with st.container():
                for item, is_shown in zip(row, shown, strict=True):
                    if is_shown:
                        tell(item)


def drawer(title: str, *, key: str, marks: Sequence[str], is_wrong: bool) -> ExpanderContainer:
    """Draw a drawer, to be filled if it is open.

    Args:
        title: what always stands on it, in Markdown.
        key: of whether it is open.
        marks: what stands behind the title now; any text, which a browser takes for text alone.
        is_wrong: whether the marks are red.
    """
    drawn = st.expander(title, key=key, on_change="rerun")
    if any(marks):
        css_class = "st-key-" + re.sub(r"[^a-zA-Z0-9_-]", "-", key)
        text = "".join(f" \u00b7 {mark}" for mark in marks if mark)
        colour = "color: #bd4043;" if is_wrong else ""
        st.html(
            f"<style>.{css_class} > * > details > summary p::after {{"
            f' content: "{_escaped(text)}"; font-weight: 600; {colour} }}</style>'
        )
    return drawn


def _escaped(text: str) -> str:
    r"""Return a text as it stands within the quotes of a style sheet.

    >>> _escaped('2 given"')
    '2\\000020given\\000022'
    >>> _escaped("</style>")
    '\\00003c\\00002fstyle\\00003e'
    """
    is_plain = re.compile(r"[a-zA-Z0-9_]").fullmatch  # an escape takes the space behind it away
    return "".join(one if is_plain(one) else f"\\{ord(one):06x}" for one in text)
