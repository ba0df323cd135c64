"""What a run of such a model is given: a tokenizer of bytes, and room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.resolve_model import FALLBACK_MAX_MODEL_LEN

from trinity_lab.external.text_tokens import NO_LIMIT, ROOM, TOKENIZER

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = ["use_bytes"]


def use_bytes(config: Config) -> None:
    """Let a configuration of an external model have the tokenizer that the engine reads."""
    model, rollout = config.model, config.explorer.rollout_model
    _let_judges_have_tokens(config)
    response = rollout.max_response_tokens or model.max_response_tokens
    if response is None and model.max_model_len is not None:
        response = model.max_model_len // 2
    model.external_model.model_name = model.external_model.model_name or model.model_path
    model.model_path = str(TOKENIZER)
    model.custom_chat_template = model.chat_template_path = None
    for section in (model, rollout):
        section.max_model_len, section.max_prompt_tokens = ROOM, None
        section.max_response_tokens = response or NO_LIMIT


def _let_judges_have_tokens(config: Config) -> None:
    """Give other models the lengths that they would have without the room for bytes."""
    model = config.model
    if model.max_model_len == ROOM:  # they have them
        return
    length = model.max_model_len or FALLBACK_MAX_MODEL_LEN
    for one in config.explorer.auxiliary_models:
        one.max_model_len = one.max_model_len or length
        half = one.max_model_len // 2
        one.max_prompt_tokens = one.max_prompt_tokens or model.max_prompt_tokens or half
        one.max_response_tokens = one.max_response_tokens or model.max_response_tokens or half
