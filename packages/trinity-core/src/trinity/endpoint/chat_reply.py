"""What a call was answered with, in the shape of POST /v1/chat/completions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.models.said import Reply
    from trinity.endpoint.call import Served
    from trinity.endpoint.chat_request import ChatRequest

Json = dict[str, Any]  # Any: what JSON holds


def chat_reply(
    served: Served, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> Json:
    """Return the body.

    Args:
        served: the answer.
        request: the form that it is to have.
        model: the model's name, as it was asked for.
        decode: gives the text of a token.
    """
    body: Json = {
        "id": f"chatcmpl-{served.run}-{served.number}",
        "object": "chat.completion",
        "created": served.created,
        "model": model,
        "system_fingerprint": f"weights-{served.version}",
        "choices": [
            _choice(reply, request, index=index, decode=decode)
            for index, reply in enumerate(served.replies)
        ],
        "usage": usage_of(served),
    }
    if request.wants_token_ids:
        body["prompt_token_ids"] = served.prompt_token_ids
    return body


def usage_of(served: Served) -> Json:
    """Return how many tokens were read and sampled."""
    num_prompt, num_sampled = served.num_prompt_tokens, served.num_sampled
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def tool_calls_of(reply: Reply) -> list[Json]:
    """Return the calls of tools; their arguments are texts of JSON, as OpenAI has them."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments, ensure_ascii=False),
            },
        }
        for call in reply.parsed.tool_calls
    ]


def logprobs_of(reply: Reply, *, decode: Callable[[int], str]) -> list[Json]:
    """Return the log-probability of each sampled token, its text beside it."""
    completion = reply.completion
    pairs = zip(completion.token_ids, completion.logprobs, strict=True)
    return [_logprob(decode(token), logprob) for token, logprob in pairs]


def _logprob(token: str, logprob: float) -> Json:
    is_whole = "\N{REPLACEMENT CHARACTER}" not in token  # else a part of a character
    return {
        "token": token,
        "bytes": list(token.encode()) if is_whole else None,
        "logprob": logprob,
        "top_logprobs": [],
    }


def _choice(
    reply: Reply, request: ChatRequest, *, index: int, decode: Callable[[int], str]
) -> Json:
    choice: Json = {
        "index": index,
        "finish_reason": reply.finish_reason,
        "stop_reason": reply.outcome.stop_reason,
        "message": message_of(reply),
        "logprobs": None,
    }
    if request.wants_logprobs:
        choice["logprobs"] = {"content": logprobs_of(reply, decode=decode), "refusal": None}
    if request.wants_token_ids:
        choice["token_ids"] = list(reply.completion.token_ids)
    return choice


def message_of(reply: Reply) -> Json:
    """Return the reply as a message of the assistant."""
    parsed, calls = reply.parsed, tool_calls_of(reply)
    message: Json = {"role": "assistant", "content": parsed.content, "refusal": None}
    if parsed.reasoning is not None:
        message |= {"reasoning_content": parsed.reasoning, "reasoning": parsed.reasoning}
    if calls:
        message |= {"content": parsed.content or None, "tool_calls": calls}
    return message
