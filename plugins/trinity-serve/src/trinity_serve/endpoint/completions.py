"""POST /v1/completions: a plain text that is gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity_serve.endpoint.chat import (
    ChatRequest,
    logprobs_of,
    refuse_unable,
    sampling_of,
    usage_of,
)
from trinity_serve.endpoint.dialect import event
from trinity_serve.endpoint.fields import bad_field, boolean, mapping, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity_serve.endpoint.chat import ChatCompletion, Retry

_REFUSED: Mapping[str, tuple[Any, ...]] = {"echo": (False,), "suffix": ("",), "best_of": (1,)}


def read_completion(
    body: Mapping[str, Any], *, agent: str, retry: Retry, template_reads: Callable[[str], bool]
) -> ChatRequest:
    """Return what the body asks for.

    Raises:
        Refusal: a field cannot be honoured.
    """
    refuse_unable(body)
    for name, harmless in _REFUSED.items():
        if body.get(name) is not None and body[name] not in harmless:
            raise bad_field(name, "is not supported by this endpoint; leave it out.")
    logprobs = whole(body, "logprobs", low=0)
    if logprobs is not None and logprobs > 1:
        raise bad_field("logprobs", f"is {logprobs}; give 1 for those of the sampled tokens.")
    return ChatRequest(
        prompt=_prompt(body.get("prompt")),
        sampling=sampling_of(body),
        agent=agent,
        retry=retry,
        wants_logprobs=logprobs is not None,
        wants_token_ids=boolean(body, "return_token_ids"),
        is_streamed=boolean(body, "stream"),
        wants_usage=boolean(mapping(body, "stream_options") or {}, "include_usage"),
    )


def completion_reply(
    served: ChatCompletion, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> dict[str, Any]:
    """Return the body."""
    body: dict[str, Any] = {
        "id": f"cmpl-{served.run}-{served.number}",
        "object": "text_completion",
        "created": served.created,
        "model": model,
        "system_fingerprint": f"weights-{served.version}",
        "choices": [],
        "usage": usage_of(served),
    }
    for index, reply in enumerate(served.replies):
        choice: dict[str, Any] = {
            "index": index,
            "text": reply.parsed.content,
            "finish_reason": reply.outcome.finish_reason,
            "stop_reason": reply.outcome.stop_reason,
            "logprobs": None,
        }
        if request.wants_logprobs:
            tokens = logprobs_of(reply, decode=decode)
            choice["logprobs"] = {
                "tokens": [one["token"] for one in tokens],
                "token_logprobs": [one["logprob"] for one in tokens],
                "top_logprobs": None,
                "text_offset": [],
            }
        if request.wants_token_ids:
            choice["token_ids"] = list(reply.completion.token_ids)
            body["prompt_token_ids"] = served.replies[0].prompt_token_ids
        body["choices"].append(choice)
    return body


def completion_stream(
    served: ChatCompletion, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> Iterator[bytes]:
    """Yield the events."""
    whole_body = completion_reply(served, request, model=model, decode=decode)
    usage = whole_body.pop("usage")
    yield event(whole_body)
    if request.wants_usage:
        yield event({**whole_body, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _prompt(given: Any) -> str | tuple[int, ...]:  # Any: a client's
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], (str, list)):
        given = given[0]
    if isinstance(given, str) and given:
        return given
    if isinstance(given, list) and given and all(type(one) is int and one >= 0 for one in given):
        return tuple(given)
    raise bad_field("prompt", "must be one text, or the token ids of one.")
