"""What every parser of replies must hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trinity.common.ports import ParsedReply

from trinity_testing.check import Check, CheckContext, Finding, Skipped, in_words
from trinity_testing.checks.replies import REPLIES, TOOL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.extend.component import Component

__all__ = ["checks"]

PLAIN = "The answer is 46."
PROMPTS = ("", "<|im_start|>assistant\n<think>\n", "<think>\n\n</think>\n\n")


def reads_any_text(component: Component, context: CheckContext) -> Finding | None:
    """Find a text that it raises at, or reads as something that cannot be served."""
    for text, parsed in _parsed(component, context, tools=[TOOL]):
        if isinstance(parsed, Exception):
            return Finding(f"at {text!r:.60} it {in_words(parsed)}")
        if not isinstance(parsed, ParsedReply) or not isinstance(parsed.content, str):
            return Finding(f"{text!r:.60} becomes {parsed!r:.60}")
        for call in parsed.tool_calls:
            if not isinstance(call.arguments, dict) or not isinstance(call.name, str):
                return Finding(f"{text!r:.60} calls {call!r:.60}")
            try:
                json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()
            except (TypeError, ValueError) as error:
                return Finding(f"JSON cannot hold the arguments of {text!r:.60}: {error}")
    return None


def repairs_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a malformed reply that is not served as it is, or a call where there are no tools."""
    for text, parsed in _parsed(component, context, tools=[TOOL]):
        if not isinstance(parsed, ParsedReply) or not parsed.is_malformed:
            continue
        if parsed.content != text or parsed.tool_calls:
            return Finding(f"of the malformed {text!r:.60} it serves {parsed!r:.60}")
    for text, parsed in _parsed(component, context, tools=[]):
        if isinstance(parsed, ParsedReply) and parsed.tool_calls:
            return Finding(f"without tools, {text!r:.60} calls {parsed.tool_calls[0].name!r}")
    return None


def keeps_plain_text(component: Component, context: CheckContext) -> Finding | None:
    """Find a reply without marks that is neither content nor reasoning afterwards."""
    parser = context.build(component)
    for tools in ([], [TOOL]):
        try:
            parsed = parser.parse(PLAIN, prompt="", tools=tools)
        except Exception as error:
            raise Skipped("reply_parser.total fails") from error
        if PLAIN not in f"{parsed.content} {parsed.reasoning or ''}":
            return Finding(f"{PLAIN!r} is served as {parsed!r:.60}")
    return None


def gives_each_call_an_id(component: Component, context: CheckContext) -> Finding | None:
    """Find an id of a call that another call has."""
    ids = [
        call.id
        for _ in range(2)
        for _, parsed in _parsed(component, context, tools=[TOOL])
        if isinstance(parsed, ParsedReply)
        for call in parsed.tool_calls
    ]
    if not ids:
        raise Skipped("it reads no call in a notation that the kit knows")
    twice = next((one for one in ids if ids.count(one) > 1), None)
    return None if twice is None else Finding(f"two calls have the id {twice!r}")


def _parsed(
    component: Component, context: CheckContext, *, tools: list[dict[str, Any]]
) -> Iterator[tuple[str, Any]]:  # Any: what it returned, or the error that it raised
    parser = context.build(component)
    for prompt in PROMPTS:
        for text in REPLIES:
            try:
                yield text, parser.parse(text, prompt=prompt, tools=tools)
            except Exception as error:  # noqa: BLE001 -- that is what is looked for
                yield text, error


KINDS = frozenset({"reply_parser"})
checks = (
    Check(
        id="reply_parser.total",
        function=reads_any_text,
        remedy="Return a ParsedReply for any text; where a call is none, is_malformed=True.",
        kinds=KINDS,
    ),
    Check(
        id="reply_parser.malformed",
        function=repairs_nothing,
        remedy="Give the whole text as content and no calls where is_malformed, or without tools.",
        kinds=KINDS,
    ),
    Check(
        id="reply_parser.plain",
        function=keeps_plain_text,
        remedy="Give the text of a reply as content, where it is not reasoning.",
        kinds=KINDS,
    ),
    Check(
        id="reply_parser.ids",
        function=gives_each_call_an_id,
        remedy="Leave the id to ToolCall, which makes one that nobody can guess.",
        kinds=KINDS,
    ),
)
