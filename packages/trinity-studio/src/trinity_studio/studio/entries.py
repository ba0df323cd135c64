"""Registered settings and the document: each follows the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from trinity_studio.studio.document import NOTHING
from trinity_studio.studio.sheet import SEEN, keep

if TYPE_CHECKING:
    from trinity_studio.config_registry.config_registry import ConfigEntry, ConfigGenerators
    from trinity_studio.studio.document import Document

__all__ = ["Entries"]

_SHARE = "_train_batch_size_per_gpu"


class Entries:
    """The registered settings, kept in step with the document that is edited.

    Args:
        generators: the settings.
    """

    def __init__(self, generators: ConfigGenerators) -> None:
        self.generators = generators

    def follow(self, document: Document) -> None:
        """Let every setting have its value in ``st.session_state``: the document's, or its own.

        Streamlit forgets the values of widgets that are not drawn, so they are given anew.
        """
        state = st.session_state
        keep(key for entry in self.generators for key in (entry.name, *entry.other_configs))
        self.generators.set_defaults(state)
        self._compute(document)
        seen = state.setdefault(SEEN, {})
        for entry in self.generators:
            if entry.path is None:
                continue
            self._fill_in(entry, document)
            value = document.get(entry.path)
            if entry.name not in seen or seen[entry.name] != value:
                seen[entry.name] = value
                fits = value is not NOTHING and _is_like(value, entry.default_value)
                state[entry.name] = value if fits else entry.default_value
                self._follow_gpus(entry, document)

    def is_kept(self, entry: ConfigEntry, document: Document) -> bool:
        """Return whether the widget of a setting cannot show what a file says, or leaves open."""
        if entry.path is None or document.is_fresh:
            return False
        value = document.get(entry.path)
        if value is NOTHING or not _is_like(value, entry.default_value):
            return True
        is_typed = st.session_state[entry.name] != value
        if _SHARE not in entry.other_configs or is_typed:
            return False
        return bool(value != st.session_state[_SHARE] * st.session_state["trainer_gpu_num"])

    def take_over(self, entry: ConfigEntry, document: Document) -> None:
        """Write what was drawn into the document, where it is not what that says already."""
        if entry.path is None:
            return
        shown, value = st.session_state[entry.name], document.get(entry.path)
        is_unchanged = shown == (entry.default_value if value is NOTHING else value)
        if is_unchanged and not (value is NOTHING and document.is_fresh and shown != ""):
            return
        if shown in ("", None):
            document.remove(entry.path)
        else:
            document.set(entry.path, shown)
        st.session_state[SEEN][entry.name] = document.get(entry.path)

    def _compute(self, document: Document) -> None:
        """Give what settings ask of the machine and of the mode."""
        nodes, each = (_integer(document, f"cluster.{key}") for key in ("node_num", "gpu_per_node"))
        total = max(nodes, 1) * each
        rollout = "explorer.rollout_model"
        engines = max(_integer(document, f"{rollout}.engine_num"), 1) * max(
            _integer(document, f"{rollout}.tensor_parallel_size"), 1
        )
        mode = document.get("mode")
        state = st.session_state
        state["mode"] = mode.lower() if isinstance(mode, str) else "both"
        state["total_gpu_num"] = total
        uses_engines = state["mode"] != "train" and total > 1
        state["trainer_gpu_num"] = max(total - (engines if uses_engines else 0), 0)

    def _fill_in(self, entry: ConfigEntry, document: Document) -> None:
        """Let a document that is no file yet say what the page shows."""
        if not document.is_fresh or entry.path is None:
            return
        value, visible = document.get(entry.path), entry.is_visible()
        is_its_own = not entry.other_configs  # its function works its value out from others
        if value is NOTHING and visible and is_its_own and entry.default_value not in ("", None):
            document.set(entry.path, entry.default_value)
        elif not visible and value == entry.default_value:
            document.remove(entry.path)

    def _follow_gpus(self, entry: ConfigEntry, document: Document) -> None:
        """Let the share of each GPU be that of the file, or what it begins with."""
        if _SHARE not in entry.other_configs:
            return
        gpus, value = st.session_state["trainer_gpu_num"], document.get(entry.path or "")
        fits = _is_like(value, entry.default_value) and gpus > 0 and value % gpus == 0
        share = max(value // gpus, 1) if fits else entry.other_configs[_SHARE]
        st.session_state[_SHARE] = share


def _integer(document: Document, path: str) -> int:
    value = document.get(path)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _is_like(value: Any, default: Any) -> bool:
    """Return whether a value of a file is of the kind that the widget shows."""
    if isinstance(value, str):
        return isinstance(default, str) and "${" not in value
    return default is None or type(value) is type(default)
