"""The YAML that the page makes: shown, judged, kept in a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from trinity_studio.studio.secrets import without_secrets

if TYPE_CHECKING:
    from trinity_studio.studio.findings import Findings
    from trinity_studio.studio.sheet import Sheet

__all__ = ["draw_output", "write_file"]


def draw_output(sheet: Sheet, text: str, found: Findings, *, unfinished: set[str]) -> None:
    """Draw the file as it would be written, what is wrong with it, and where it can go."""
    st.header("Configuration File")
    _draw_verdict(sheet, found, unfinished)
    st.code(without_secrets(text), language="yaml", height=360)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.session_state.setdefault("_save_as", "")
        path = st.text_input("Save as", key="_save_as", placeholder="path on this machine")
        st.button("Save", key="_save", on_click=_save, args=(path, text), disabled=not path.strip())
        st.download_button("Download", text, file_name="config.yaml", mime="application/yaml")
    if said := st.session_state.pop("_saved", None):
        (st.success if said[0] else st.error)(said[1])


def _draw_verdict(sheet: Sheet, found: Findings, unfinished: set[str]) -> None:
    others = list(sheet.untold())
    count = found.count + len(sheet.unread)
    if count == 0 and not unfinished:
        st.success("`trinity config check` finds nothing wrong with it.")
    elif count:
        st.error(f"{count} problem{'s'[: count != 1]} to solve before it can be run.")
    else:
        st.warning(f"Unfinished: {', '.join(sorted(unfinished))}.")
    if others:
        st.markdown("\n".join(f"- `{path or 'the file'}`: {line}" for path, line in others))
    if found.notes:
        with st.expander(f"{len(found.notes)} notes on what it comes to on this machine"):
            st.markdown("\n".join(f"- {line}" for line in found.notes))


def _save(path: str, text: str) -> None:
    try:
        file = Path(path.strip()).expanduser()
        write_file(file, text)
    except OSError as error:
        reason = error.strerror or str(error)
        st.session_state["_saved"] = (False, f"{path} cannot be written: {reason}.")
        return
    st.session_state["_saved"] = (True, f"Saved as {file.absolute()}.")


def write_file(path: Path, text: str) -> None:
    """Replace a file by a text, whole or not at all; nobody else may read one that is made."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
