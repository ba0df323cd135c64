"""A ModelWrapper without a model."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.extend import get_manager

from trinity_testing.engines import ScriptedEngine, script_tokenizer

if TYPE_CHECKING:
    from trinity.common.ports import EndpointOpener, RolloutEngine, RunSession

__all__ = ["model_over", "script_chat_format", "scripted_model"]

MAX_MODEL_LEN = 16384  # room for the long prompts of an environment
MAX_RESPONSE_TOKENS = 1024


@cache
def script_chat_format() -> ChatFormat:
    """Return the chat format of the engines without a model."""
    return ChatFormat(script_tokenizer())


def scripted_model(
    *answers: str, repeat: bool = False, fails_at: int | None = None
) -> ModelWrapper:
    """Return a model that gives these answers one after the other; see ``ScriptedEngine``.

    To look at what it was asked, build it as ``model_over(engine)``.
    """
    return model_over(ScriptedEngine(*answers, repeat=repeat, fails_at=fails_at))


def model_over(engine: RolloutEngine) -> ModelWrapper:
    """Return a model that asks this engine, and records every call."""
    settings = ModelSettings(
        model_path="scripted",
        max_model_len=MAX_MODEL_LEN,
        max_response_tokens=MAX_RESPONSE_TOKENS,
        enable_history=True,
        enable_openai_api=True,
    )
    return ModelWrapper(engine, script_chat_format(), settings, endpoints=_Endpoints())


class _Endpoints:
    """Opens endpoints where one is asked for; most models of tests are never asked by HTTP."""

    def open(self, model: ModelWrapper) -> RunSession:
        return _server().open(model)

    def close(self) -> None:
        """Leave the server to the other models: it ends with the process."""


@cache
def _server() -> EndpointOpener:
    server: EndpointOpener = get_manager().load("endpoint", "openai")()
    return server
