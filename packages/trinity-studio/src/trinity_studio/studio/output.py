"""The YAML that the page makes: shown, judged, kept in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from trinity_studio.studio.joints import with_joints
from trinity_studio.studio.kept_text import kept_text
from trinity_studio.studio.secrets import shown_text
from trinity_studio.studio.writing import place_of, stamp_of, write_file

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from trinity_studio.studio.findings import Findings
    from trinity_studio.studio.sheet import Sheet

__all__ = ["beside", "draw_output"]

_KEY = "output"
_WANTED = "_is_save_wanted"
_STAYS = f"""<style>
[data-testid="stColumn"]:has(.st-key-{_KEY}) {{
  position: sticky; top: 3.5rem; align-self: flex-start;
}}
[data-testid="stMainBlockContainer"] {{ padding-top: 3.2rem; }}
.st-key-{_KEY} li code {{ font-size: .8em; }}
.st-key-{_KEY} h2 {{ font-size: clamp(1.4rem, 2.6vw, 2.25rem); }}
[data-testid="stButtonGroup"] [role="radiogroup"] {{ flex-wrap: wrap; }}
</style>"""


def beside() -> tuple[DeltaGenerator, DeltaGenerator]:
    """Return where settings go, and beside them where the file stays in sight as they scroll."""
    st.html(_STAYS)
    fields, output = st.columns([3, 2], gap="medium")
    return fields, output.container(key=_KEY)


def draw_output(
    sheet: Sheet, values: dict[str, Any], found: Findings, *, unfinished: set[str]
) -> None:
    """Draw the file as it would be written, what is wrong with it, and where it can go."""
    st.header("Configuration File")
    with st.container():  # however much it says, what follows stays in place
        _draw_verdict(sheet, found, unfinished)
    text = kept_text(sheet.document.text, values)
    st.code(shown_text(sheet.document.text, values), language="yaml", height=420)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.session_state.setdefault("_save_as", "")
        path = st.text_input(
            "Save as",
            key="_save_as",
            placeholder="path on this machine",
            persist_state="session",
        )
        st.button("Save", key="_save", on_click=_ask_to_save)
        st.download_button("Download", text, file_name="config.yaml", mime="application/yaml")
        st.button("Check again", key="_check", on_click=_forget_findings)
    if st.session_state.pop(_WANTED, False):
        _save(path, text)
    elif st.session_state.get("_asked") == path and path:
        st.warning(f"{path} holds something else than was opened here. Save would replace it.")
        if st.button("Replace it", key="_replace"):
            _save(path, text, may_replace=True)


def _ask_to_save() -> None:
    """Note the click: the page may be begun anew before it comes to where the file is written."""
    st.session_state[_WANTED] = True


def _forget_findings() -> None:
    """Let the check look again: files that it asks for may be there now."""
    st.session_state.pop("_findings", None)


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
        st.html(f"<ul>{''.join(_item(path, line) for path, line in others)}</ul>")
    if found.notes:
        with st.expander(f"{len(found.notes)} notes on what it comes to on this machine"):
            st.markdown("\n".join(f"- {line}" for line in found.notes))


def _item(path: str, line: str) -> str:
    """Return a problem as an item of a list.

    >>> _item("model", "there is no '<b>'.")
    "<li><code>model</code>: there is no '&lt;b&gt;'.</li>"
    """
    return f"<li><code>{with_joints(path) or 'the file'}</code>: {with_joints(line)}</li>"


def _save(path: str, text: str, *, may_replace: bool = False) -> None:
    """Write the file, and say so; one that was not opened or saved here is asked about first."""
    state = st.session_state
    state["_asked"] = ""
    if not path.strip():
        st.error("Write the path of a file first.")
        return
    try:
        file = place_of(path)
        if file.exists() and not may_replace and state.get("_known") != stamp_of(file):
            state["_asked"] = path
            st.rerun()
        write_file(file, text)
    except OSError as error:
        st.error(f"{path} cannot be written: {error.strerror or error}.")
        return
    state["_known"] = stamp_of(file)
    st.success(f"Saved as {file}.")
