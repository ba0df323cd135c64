"""Settings of the sections ``explorer`` and ``synchronizer`` that have a function of their own."""

from __future__ import annotations

from typing import Any

import streamlit as st

from trinity_studio.config_registry.config_registry import CONFIG_GENERATORS

__all__ = ["check_engine_num", "set_engine_num", "set_sync_interval"]


@CONFIG_GENERATORS.register_config(default_value=1, path="explorer.rollout_model.engine_num")
def set_engine_num(**kwargs: Any) -> None:
    """Draw how many engines generate."""
    st.number_input(
        "Engines",
        min_value=1,
        step=1,
        help="`explorer.rollout_model.engine_num`: engines, each with a copy of the model; "
        "the trainer gets the GPUs that they leave",
        persist_state="session",
        **kwargs,
    )


@CONFIG_GENERATORS.register_check()
def check_engine_num(unfinished_fields: set[str], key: str) -> None:
    """Warn where engines take every GPU and none is left for the trainer."""
    gpus = st.session_state["total_gpu_num"]
    if gpus > 1 and st.session_state["trainer_gpu_num"] < 1:
        unfinished_fields.add(key)
        st.warning(f"The engines take all {gpus} GPUs: none is left for the trainer.")


@CONFIG_GENERATORS.register_config(default_value=1, path="synchronizer.sync_interval")
def set_sync_interval(**kwargs: Any) -> None:
    """Draw how many steps lie between two synchronisations."""
    st.number_input(
        "Sync Interval",
        min_value=1,
        step=1,
        help="`synchronizer.sync_interval`: steps between two weight syncs",
        persist_state="session",
        **kwargs,
    )
