"""Settings of the section ``model``, and of the run itself, that have a function of their own."""

from __future__ import annotations

from typing import Any

import streamlit as st

from trinity_studio.config_registry.config_registry import CONFIG_GENERATORS

__all__ = ["check_model_path", "set_model_path"]


@CONFIG_GENERATORS.register_config(default_value="", path="model.model_path")
def set_model_path(**kwargs: Any) -> None:
    """Draw which model is trained."""
    st.text_input(
        "Model",
        placeholder="a folder, or an id such as Qwen/Qwen3-0.6B",
        help="`model.model_path`: folder or Hugging Face id of the model",
        **kwargs,
    )


@CONFIG_GENERATORS.register_check()
def check_model_path(unfinished_fields: set[str], key: str) -> None:
    """Ask for a model where none is named."""
    if not str(st.session_state[key] or "").strip():
        unfinished_fields.add(key)
        st.warning("Name the model that is to be trained.")
