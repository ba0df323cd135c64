"""How long prompts and responses may be, and what the engine takes over from ``model``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.common.config.resolve import Resolution

FALLBACK_MAX_MODEL_LEN = 2048  # where neither the configuration nor the model says how long

_LENGTH, _PROMPT, _RESPONSE = (
    "model.max_model_len",
    "model.max_prompt_tokens",
    "model.max_response_tokens",
)
_ENGINE_PROMPT = "explorer.rollout_model.max_prompt_tokens"
_TAKEN_OVER = (
    "model_path",
    "trust_remote_code",
    "temperature",
    "top_p",
    "top_k",
    "logprobs",
    "max_model_len",
    "max_prompt_tokens",
    "max_response_tokens",
    "min_response_tokens",
    "enable_prompt_truncation",
    "repetition_penalty",
    "enable_thinking",
)


#: less would cut a batch of short rows into many small micro-batches
MIN_TOKEN_BUDGET = 4096


def resolve_model(work: Resolution) -> None:
    """Fill in the lengths, the engine's share of ``model`` and the trainer's token budget."""
    _resolve_lengths(work)
    for name in _TAKEN_OVER:
        work.default(
            f"explorer.rollout_model.{name}", work.value(f"model.{name}"), origin=f"model.{name}"
        )
    work.default(
        "model.critic_model_path", work.value("model.model_path"), origin="model.model_path"
    )
    ranks = work.config.trainer.ulysses_sequence_parallel_size
    work.default(
        "trainer.max_token_len_per_gpu",
        max(MIN_TOKEN_BUDGET, math.ceil(2 * work.value(_LENGTH) / ranks)),
        origin=f"2 x model.max_model_len, at least {MIN_TOKEN_BUDGET}",
    )


def _resolve_lengths(work: Resolution) -> None:
    has_prompt, has_response = work.asked(_PROMPT), work.asked(_RESPONSE)
    if not work.asked(_LENGTH):
        if has_prompt and has_response:
            length = work.value(_PROMPT) + work.value(_RESPONSE)
            work.fill(_LENGTH, length, origin="max_prompt_tokens + max_response_tokens")
        elif work.machine.model_max_len:
            work.fill(_LENGTH, work.machine.model_max_len, origin="the model's config.json")
        else:
            work.fill(_LENGTH, FALLBACK_MAX_MODEL_LEN, origin="default")
            _note_length(work)
    length = work.value(_LENGTH)
    if not has_prompt and not has_response:
        work.fill(_RESPONSE, max(1, length // 2), origin="half of model.max_model_len")
        work.fill(_PROMPT, max(1, length - length // 2), origin="half of model.max_model_len")
        return
    if not has_prompt and work.asked(_ENGINE_PROMPT):
        _leave_tokens_for_reply(work, length)
    rest = "the rest of model.max_model_len"
    if not has_prompt:
        work.fill(_PROMPT, max(1, length - work.value(_RESPONSE)), origin=rest)
    if not has_response:
        work.fill(_RESPONSE, max(1, length - work.value(_PROMPT)), origin=rest)


def _note_length(work: Resolution) -> None:
    model = work.config.model
    if model.model_path and not model.external_model.enable:
        work.note(
            f"model.max_model_len is {FALLBACK_MAX_MODEL_LEN}: the limit of {model.model_path} "
            f"(max_position_embeddings in its config.json) is not known here. Set the key."
        )


def _leave_tokens_for_reply(work: Resolution, length: int) -> None:
    """Shorten responses that fill the context, where only the engine's prompts have a limit.

    The engine ends each reply where prompt and reply fill the context.
    """
    response = work.value(_RESPONSE)
    if response >= length > 1:
        work.fill(_RESPONSE, length - 1, origin="model.max_model_len, less a prompt of a token")
        work.note(
            f"requested model.max_response_tokens {response}, but prompt and response share "
            f"max_model_len {length}: a response ends when both fill it"
        )
