"""Settings of the section ``buffer`` that have a function of their own."""

from __future__ import annotations

from typing import Any

import streamlit as st

from trinity_studio.config_registry.config_registry import CONFIG_GENERATORS

__all__ = ["check_train_batch_size", "set_total_epochs", "set_train_batch_size"]


@CONFIG_GENERATORS.register_config(default_value=1, path="buffer.total_epochs")
def set_total_epochs(**kwargs: Any) -> None:
    """Draw how often all tasks are taken."""
    st.number_input(
        "Total Epochs",
        min_value=1,
        step=1,
        help="`buffer.total_epochs`: epochs over the training tasks; total_steps overrides it",
        persist_state="session",
        **kwargs,
    )


def _str_for_train_batch_size() -> str:
    gpus = st.session_state["trainer_gpu_num"]
    return (
        "`buffer.train_batch_size`: experiences of one train step. The trainer's "
        f"{gpus} GPUs share them evenly, so it is a multiple of {gpus}."
    )


@CONFIG_GENERATORS.register_config(
    default_value=96,
    visible=lambda: st.session_state["trainer_gpu_num"] > 0,
    other_configs={"_train_batch_size_per_gpu": 16},
    path="buffer.train_batch_size",
)
def set_train_batch_size(**kwargs: Any) -> None:
    """Draw the batch of a train step; it follows the number of GPUs, as many for each."""
    key = kwargs["key"]
    gpus = st.session_state["trainer_gpu_num"]
    st.session_state[key] = st.session_state["_train_batch_size_per_gpu"] * gpus

    def on_change() -> None:
        per_gpu = st.session_state[key] // st.session_state["trainer_gpu_num"]
        st.session_state["_train_batch_size_per_gpu"] = max(per_gpu, 1)

    st.number_input(
        "Train Batch Size",
        min_value=gpus,
        step=gpus,
        help=_str_for_train_batch_size(),
        on_change=on_change,
        persist_state="session",
        **kwargs,
    )


@CONFIG_GENERATORS.register_check()
def check_train_batch_size(unfinished_fields: set[str], key: str) -> None:
    """Warn where the trainer's GPUs cannot share the batch evenly."""
    if st.session_state[key] % st.session_state["trainer_gpu_num"] != 0:
        unfinished_fields.add(key)
        st.warning(_str_for_train_batch_size())
