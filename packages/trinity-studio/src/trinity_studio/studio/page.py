"""The script that Streamlit runs, from its first line to its last, whenever something changes."""

from __future__ import annotations

import streamlit as st
from trinity.extend.component import imported_target, look_in_working_directory

from trinity_studio.config_manager import ConfigManager
from trinity_studio.studio.server import served
from trinity_studio.studio.starting import open_first

__all__ = ["main"]


def main() -> None:
    """Draw the page."""
    st.set_page_config(page_title="Trinity Studio", layout="wide")
    st.title("Trinity Studio")
    open_first(served.file)
    _manager()().draw()


def _manager() -> type[ConfigManager]:
    """Return the class that draws the configuration."""
    if not served.manager:
        return ConfigManager
    look_in_working_directory(served.manager)
    return imported_target(served.manager)


main()
