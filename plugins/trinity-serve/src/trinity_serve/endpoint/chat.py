"""POST /v1/chat/completions: the body made into a request, and the answer, whole or as a stream."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Structure

from trinity_serve.endpoint.dialect import event
from trinity_serve.endpoint.fields import bad_field, boolean, items, mapping, number, whole
from trinity_serve.endpoint.messages import canonical_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity.common.models.exchange import ToolCallMode
    from trinity.common.models.recorded_calls import RecordedCall


MAX_CHOICES = 128
MAX_STOPS = 16
#: accepted: these change nothing
WITHOUT_EFFECT = frozenset(
    [
        "user",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "safety_identifier",
        "stream_options",
        "prompt_cache_retention",
    ]
)
#: refused unless they are absent, or as an SDK sends them by default
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "top_logprobs": (0,),
}
READ = frozenset(
    [
        "messages",
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "ignore_eos",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "seed",
        "min_tokens",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "logprobs",
        "stream",
        "return_token_ids",
        "chat_template_kwargs",
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """What tells whether a call was made before."""

    body: bytes  # a digest: calls of equal bodies may be one
    count: int = 0  # how often the client has already tried
    key: str = ""  # of idempotency; empty: none was sent


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """What is asked, and the form that its answer is to have."""

    messages: tuple[Mapping[str, Any], ...] = ()  # Any: as chat templates take them
    prompt: str | tuple[int, ...] | None = None  # plain text or its token ids, no messages
    tools: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)  # of models.settings.Sampling
    structure: Structure | None = None
    calls: ToolCallMode = "read"  # of tools
    max_calls: int | None = None  # further ones are left out
    agent: str = ""
    retry: Retry
    wants_logprobs: bool = False
    wants_token_ids: bool = False
    is_streamed: bool = False
    wants_usage: bool = False  # as the last chunk of a stream
    body: Mapping[str, Any] = field(default_factory=dict)  # as it came


def read_chat(
    body: Mapping[str, Any], *, agent: str, retry: Retry, template_reads: Callable[[str], bool]
) -> ChatRequest:
    """Return what the body asks for.

    Args:
        body: as it came.
        agent: who asks.
        retry: what tells whether the call was made before.
        template_reads: whether the chat template reads a name.

    Raises:
        Refusal: a field cannot be honoured.
    """
    refuse_unable(body)
    stream_options = mapping(body, "stream_options") or {}
    choice, wanted = tool_choice(body), _structure(body)
    may_call = bool(choice.tools) and choice.calls == "read"  # held to a form, it never would
    return ChatRequest(
        messages=canonical_messages(body),
        tools=choice.tools,
        template_options=_template_options(body, template_reads),
        sampling=sampling_of(body),
        structure=None if may_call else choice.structure or wanted,
        calls=choice.calls,
        max_calls=None if boolean(body, "parallel_tool_calls", default=True) else 1,
        agent=agent,
        retry=retry,
        wants_logprobs=boolean(body, "logprobs"),
        wants_token_ids=boolean(body, "return_token_ids"),
        is_streamed=boolean(body, "stream"),
        wants_usage=boolean(stream_options, "include_usage"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolChoice:
    """The tools of a call."""

    tools: tuple[dict[str, Any], ...]
    calls: ToolCallMode = "read"
    structure: Structure | None = None  # what the reply must match


def tool_choice(body: Mapping[str, Any]) -> ToolChoice:
    """Return what a body says of tools.

    Raises:
        Refusal: a tool cannot be read, or the choice cannot be honoured.
    """
    tools = tuple(_checked(one, place=place) for place, one in enumerate(items(body, "tools")))
    wanted = body.get("tool_choice")
    if wanted is None or wanted == "auto":
        return ToolChoice(tools=tools)
    if wanted == "none":
        return ToolChoice(tools=tools, calls="text")
    return ToolChoice(tools=tools, calls="forced", structure=_forced(wanted, tools))


def _checked(tool: dict[str, Any], *, place: int) -> dict[str, Any]:
    kind, function = tool.get("type", "function"), tool.get("function")
    if kind != "function":
        raise bad_field(f"tools[{place}]", f"is of type {kind!r}; give tools of type function.")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise bad_field(f"tools[{place}].function", "needs a name; give the tool's name.")
    if not isinstance(function.get("parameters") or {}, dict):
        raise bad_field(f"tools[{place}].function.parameters", "is no object; give a JSON schema.")
    return {**tool, "type": "function"}


def _forced(wanted: Any, tools: tuple[dict[str, Any], ...]) -> Structure:  # Any: a client's
    """Return that one of the tools is called: the one that is named, or any."""
    name = None
    if isinstance(wanted, dict):
        function = wanted.get("function")
        name = function.get("name") if isinstance(function, dict) else None
    if wanted != "required" and not isinstance(name, str):
        raise bad_field("tool_choice", "is unknown; give auto, none, required or a function.")
    offered = [tool["function"] for tool in tools]
    chosen = [one for one in offered if name is None or one["name"] == name]
    if not chosen:
        known = ", ".join(one["name"] for one in offered) or "none"
        raise bad_field("tool_choice", f"names no tool of this call; it offers {known}.")
    places: set[str] = set()
    calls = [_call(one, places) for one in chosen]
    return Structure(kind="json_schema", text=json.dumps({"anyOf": calls}))


def _call(function: dict[str, Any], places: set[str]) -> dict[str, Any]:
    """Return the schema of a tool's calls, and add its ``$id`` to ``places``.

    The ``$ref`` of the tool begin at that ``$id``: its own, unless another tool has the same. Its
    ``$schema`` is left out: in drafts up to 7, no ``$id`` counts beside a ``$ref``.
    """
    given = function.get("parameters") or {"type": "object"}
    own = given.get("$id")
    place = own if isinstance(own, str) and own not in places else f"trinity:///tools/{len(places)}"
    places.add(place)
    schema = {name: value for name, value in given.items() if name not in {"$schema", "$id"}}
    return {
        "type": "object",
        "properties": {
            "name": {"const": function["name"]},
            "arguments": {"$id": place, **schema},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def sampling_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the body wants to be sampled, as ``Sampling`` names it."""
    most = [whole(body, name, low=1) for name in ("max_completion_tokens", "max_tokens")]
    found: dict[str, Any] = {
        "n": whole(body, "n", low=1, high=MAX_CHOICES),
        "temperature": number(body, "temperature", low=0),
        "top_p": number(body, "top_p", low=0, high=1, above=True),
        "top_k": whole(body, "top_k", low=-1),
        "min_p": number(body, "min_p", low=0, high=1),
        "max_tokens": next((value for value in most if value is not None), None),
        "min_tokens": whole(body, "min_tokens", low=0),
        "repetition_penalty": number(body, "repetition_penalty", low=0, above=True),
        "presence_penalty": number(body, "presence_penalty", low=-2, high=2),
        "frequency_penalty": number(body, "frequency_penalty", low=-2, high=2),
        "logit_bias": _logit_bias(body),
        "seed": whole(body, "seed", low=-(2**63), high=2**63 - 1),
        "ignore_eos": boolean(body, "ignore_eos"),
        "stop": stop_of(body, "stop"),
    }
    if found["top_k"] == 0:  # another spelling of no limit
        found["top_k"] = -1
    return {name: value for name, value in found.items() if value is not None}


def _logit_bias(body: Mapping[str, Any]) -> dict[int, float] | None:
    """Return what is added to the logits of tokens, by their ids; None: nothing."""
    given = mapping(body, "logit_bias") or {}
    for token, bias in given.items():
        is_number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
        if not token.isdecimal() or not is_number or not -100 <= bias <= 100:
            shown = f"has {token!r:.40}: {bias!r:.40}"
            raise bad_field("logit_bias", f"{shown}; give ids of tokens, each with -100 to 100.")
    return {int(token): float(bias) for token, bias in given.items()} or None


def stop_of(body: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return the texts that end a reply; None: there are none."""
    value = body.get(name)
    texts = [value] if isinstance(value, str) else value
    if not texts:
        return None
    if not isinstance(texts, list) or not all(isinstance(one, str) and one for one in texts):
        raise bad_field(name, "must be a text, or a list of texts that are not empty.")
    if len(texts) > MAX_STOPS:
        raise bad_field(name, f"has {len(texts)} texts; give at most {MAX_STOPS}.")
    return tuple(texts)


def refuse_unable(body: Mapping[str, Any]) -> None:
    """Refuse what this endpoint has not, where it would change the reply."""
    for name, harmless in REFUSED.items():
        value = body.get(name)
        if value is not None and value not in harmless:
            raise bad_field(name, "is not supported by this endpoint; leave it out.")


def _template_options(
    body: Mapping[str, Any], template_reads: Callable[[str], bool]
) -> dict[str, Any]:
    known = READ | WITHOUT_EFFECT | REFUSED.keys()
    options = {name: body[name] for name in body if name not in known and template_reads(name)}
    return options | (mapping(body, "chat_template_kwargs") or {})


def _structure(body: Mapping[str, Any]) -> Structure | None:
    wanted = mapping(body, "response_format") or {}
    kind = wanted.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return Structure(kind="json_schema", text='{"type": "object"}')
    if kind != "json_schema":
        raise bad_field(
            "response_format", "has an unknown type; give text, json_object or json_schema."
        )
    described = mapping(wanted, "json_schema", path="response_format.json_schema") or {}
    schema = described.get("schema")
    if not isinstance(schema, dict):
        raise bad_field("response_format.json_schema.schema", "is missing; give a JSON schema.")
    return Structure(kind="json_schema", text=json.dumps(schema))


Json = dict[str, Any]  # Any: what JSON holds


@dataclass(kw_only=True, slots=True, eq=False)
class ChatCompletion:
    """What a call is answered with."""

    created: int  # seconds since 1970
    replies: tuple[RecordedCall, ...]  # one for each choice
    is_delivered: bool = False  # whether a client hears it

    @property
    def run(self) -> str:
        """Return which run it is of: batch/task/run."""
        key = self.replies[0].key
        return f"{key.batch}/{key.task}/{key.run}"

    @property
    def number(self) -> int:
        """Return the number of the call in its run, in order of arrival."""
        return self.replies[0].key.request

    @property
    def num_prompt_tokens(self) -> int:
        """Return how long the prompt was."""
        return self.replies[0].num_prompt_tokens

    @property
    def version(self) -> int:
        """Return the oldest version of the weights that a token was sampled with."""
        return min(int(reply.outcome.weight_version) for reply in self.replies)

    @property
    def num_sampled(self) -> int:
        """Return how many tokens were sampled."""
        return sum(reply.num_sampled for reply in self.replies)


def chat_reply(
    served: ChatCompletion, request: ChatRequest, *, model: str, decode: Callable[[int], str]
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
        body["prompt_token_ids"] = served.replies[0].prompt_token_ids
    return body


def usage_of(served: ChatCompletion) -> Json:
    """Return how many tokens were read and sampled."""
    num_prompt, num_sampled = served.num_prompt_tokens, served.num_sampled
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def tool_calls_of(reply: RecordedCall) -> list[Json]:
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


def logprobs_of(reply: RecordedCall, *, decode: Callable[[int], str]) -> list[Json]:
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
    reply: RecordedCall, request: ChatRequest, *, index: int, decode: Callable[[int], str]
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


def message_of(reply: RecordedCall) -> Json:
    """Return the reply as a message of the assistant."""
    parsed, calls = reply.parsed, tool_calls_of(reply)
    message: Json = {"role": "assistant", "content": parsed.content, "refusal": None}
    if parsed.reasoning is not None:
        message |= {"reasoning_content": parsed.reasoning, "reasoning": parsed.reasoning}
    if calls:
        message |= {"content": parsed.content or None, "tool_calls": calls}
    return message


def chat_stream(
    served: ChatCompletion, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> Iterator[bytes]:
    """Yield the events: role, reasoning, content, calls, the end, usage, ``[DONE]``."""
    whole = chat_reply(served, request, model=model, decode=decode)
    usage, choices = whole.pop("usage"), whole.pop("choices")
    prompt_ids = whole.pop("prompt_token_ids", None)
    head = {**whole, "object": "chat.completion.chunk"}
    for choice in choices:
        for place, part in enumerate(_parts(choice)):
            further = {"prompt_token_ids": prompt_ids} if prompt_ids and not place else {}
            yield event({**head, "choices": [part], **further})
    if request.wants_usage:
        yield event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _parts(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:  # Any: what JSON holds
    message, index = choice["message"], choice["index"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if "reasoning" in message:
        deltas.append({name: message[name] for name in ("reasoning_content", "reasoning")})
    if message["content"]:
        deltas.append({"content": message["content"]})
    deltas += [
        {"tool_calls": [{"index": place, **call}]}
        for place, call in enumerate(message.get("tool_calls", ()))
    ]
    for delta in deltas:
        yield {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}
    last = {name: choice[name] for name in choice if name != "message"}
    yield {**last, "delta": {}}
