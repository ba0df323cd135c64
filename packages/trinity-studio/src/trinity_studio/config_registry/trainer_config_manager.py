"""Settings of the sections ``trainer`` and ``algorithm`` that have a function of their own."""

from __future__ import annotations

from typing import Any

import streamlit as st

from trinity_studio.config_registry.config_registry import CONFIG_GENERATORS

__all__ = ["set_repeat_times", "set_save_interval"]


@CONFIG_GENERATORS.register_config(default_value=8, path="algorithm.repeat_times")
def set_repeat_times(**kwargs: Any) -> None:
    """Draw how often each task is run."""
    st.number_input(
        "Repeat Times",
        min_value=1,
        step=1,
        help="`algorithm.repeat_times`: rollouts per task (group size)",
        persist_state="session",
        **kwargs,
    )


@CONFIG_GENERATORS.register_config(default_value=0, path="trainer.save_interval")
def set_save_interval(**kwargs: Any) -> None:
    """Draw how often a checkpoint is written."""
    st.number_input(
        "Save Interval",
        min_value=0,
        step=1,
        help="`trainer.save_interval`: train steps between checkpoints; 0: only at the end",
        persist_state="session",
        **kwargs,
    )
