"""Ask the hub for a model's ``config.json``, for a few seconds."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trinity.common.config.model import ModelConfig

__all__ = ["fetch_for_seconds"]

_QUIET_S, _WAIT_S = 2.0, 10.0
_ASKING = "asking the Hugging Face hub for the config.json"


def fetch_for_seconds(model: ModelConfig) -> str:
    """Download the ``config.json`` of a model if it is needed; return why it cannot be had, or "".

    After two seconds it is said, on stderr, what is waited for.
    """
    from trinity.common.models.pretrained import fetch_settings

    failures: list[str] = []
    thread = Thread(
        target=lambda: failures.append(fetch_settings(model)), name="plan-hub", daemon=True
    )
    thread.start()
    thread.join(_QUIET_S)
    if thread.is_alive():
        typer.echo(f"{_ASKING} of {model.model_path}, for {_WAIT_S:g} s at most", err=True)
        thread.join(_WAIT_S - _QUIET_S)
    if thread.is_alive():
        return (
            f"the Hugging Face hub has not sent it within {_WAIT_S:g} s. Give model.model_path a "
            f"folder written by save_pretrained, or download the model first: "
            f"hf download {model.model_path}."
        )
    return "".join(failures)
