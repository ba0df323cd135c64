"""The script that Streamlit runs, from its first line to its last, whenever something changes."""

from __future__ import annotations

import streamlit as st
from trinity.extend.component import imported_target, look_in_working_directory

from trinity_studio.config_manager import ConfigManager
from trinity_studio.studio.choosing import choose_on_leaving
from trinity_studio.studio.parts_page import draw_parts
from trinity_studio.studio.runs_page import draw_runs
from trinity_studio.studio.server import served
from trinity_studio.studio.sheet import keep
from trinity_studio.studio.starting import open_first

__all__ = ["PAGES", "main"]

PAGES = ("Configuration", "Parts", "Runs")
_KEPT = ("_mode", "_part", "_file", "_save_as", "_kind", "_run", "_local")


def main() -> None:
    """Draw the page."""
    st.set_page_config(page_title="Trinity Studio", layout="wide")
    choose_on_leaving()
    keep(_KEPT)
    open_first(served.file)
    manager = _manager()()
    page = st.sidebar.radio("Page", PAGES, key="_page", label_visibility="collapsed")
    if page == "Configuration":
        manager.draw()
    elif page == "Parts":
        draw_parts(manager.judged()[0])
    else:
        draw_runs(*manager.judged()[1:])


def _manager() -> type[ConfigManager]:
    """Return the class that draws the configuration."""
    if not served.manager:
        return ConfigManager
    look_in_working_directory(served.manager)
    return imported_target(served.manager)


main()
