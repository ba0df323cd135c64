"""Settings of the section ``model`` that have a function of their own."""

from __future__ import annotations

from typing import Any

import streamlit as st

from trinity_studio.config_registry.config_registry import CONFIG_GENERATORS

__all__ = ["set_model_path"]


@CONFIG_GENERATORS.register_config(default_value="", path="model.model_path")
def set_model_path(**kwargs: Any) -> None:
    """Draw which model is trained."""
    st.text_input(
        "Model",
        placeholder="a folder, or an id such as Qwen/Qwen3-0.6B",
        help="`model.model_path`: folder or Hugging Face id of the model",
        persist_state="session",
        **kwargs,
    )
