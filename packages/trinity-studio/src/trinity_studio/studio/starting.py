"""Where a configuration begins: an empty one, or a file."""

from __future__ import annotations

import streamlit as st
from trinity.errors import TrinityError

from trinity_studio.studio.document import Document
from trinity_studio.studio.sheet import DOCUMENT, Sheet
from trinity_studio.studio.writing import place_of, stamp_of

__all__ = ["a_new_document", "draw_opening", "open_first"]

_BEGINNING = {
    "project": "Trinity",
    "name": "my_run",
    "mode": "both",
    "algorithm": {"algorithm_type": "grpo"},
    "buffer": {
        "explorer_input": {
            "taskset": {
                "default_workflow_type": "math_workflow",
                "default_reward_fn_type": "math_reward",
            }
        }
    },
}


def a_new_document() -> Document:
    """Return what a configuration begins with that no file holds yet."""
    return Document(_BEGINNING)


def open_first(path: str) -> None:
    """Begin with a file, where one is named and nothing is edited yet."""
    if DOCUMENT in st.session_state or not path:
        return
    st.session_state["_file"] = path
    _open(Sheet())


def draw_opening(sheet: Sheet) -> None:
    """Draw, beside the page, how to begin anew or from a file of this machine."""
    with st.sidebar:
        st.text_input(
            "YAML file",
            key="_file",
            placeholder="path of a file on this machine",
            help="It is read when you press Open; what is on the page then is gone.",
            persist_state="session",
        )
        left, right = st.columns(2)
        left.button("Open", on_click=_open, args=(sheet,))
        right.button("Begin anew", on_click=_begin, args=(sheet,))
        if st.session_state.get("_opening"):
            st.error(st.session_state["_opening"])


def _open(sheet: Sheet) -> None:
    """Read the file whose path stands in the field as the button is pressed."""
    path = st.session_state["_file"].strip()
    if not path:
        st.session_state["_opening"] = "Write the path of a YAML file first."
        return
    try:
        file = place_of(path)
        sheet.put(Document.read(file.read_text(encoding="utf-8"), name=path))
    except TrinityError as error:
        st.session_state["_opening"] = str(error)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        st.session_state["_opening"] = f"{path} cannot be read: {reason}."
    else:
        st.session_state["_opening"], st.session_state["_save_as"] = "", path
        st.session_state["_known"] = stamp_of(file)


def _begin(sheet: Sheet) -> None:
    sheet.put(a_new_document())
    st.session_state["_opening"] = st.session_state["_save_as"] = ""
    st.session_state["_known"] = None
