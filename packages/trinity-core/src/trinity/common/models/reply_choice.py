"""Which parser reads the replies of a model."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trinity.common.models.tool_parsers import tool_call
from trinity.common.ports.reply import ParsedReply
from trinity.extend import get_manager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.settings import ModelSettings
    from trinity.common.ports.reply import ReplyParser

__all__ = ["reply_parser"]

#: what a chat template writes -> the parser of such calls; the first that is there
_CALLS = {
    "<function=": "qwen3_coder",
    "<tool_call>": "hermes",
    "[TOOL_CALLS]": "mistral",
    "<|python_start|>": "pythonic",
    "<|python_tag|>": "llama3_json",
    '"parameters": ': "llama3_json",
}
_REASONING = {"</think>": "qwen3"}


def reply_parser(chat_format: ChatFormat, settings: ModelSettings) -> ReplyParser:
    """Return what reads a model's replies.

    The parsers that the settings name; else what the tokenizer says of its replies
    (``response_template``); else those of the notation that the chat template writes; else nothing
    is read, and all is content.

    Raises:
        UnknownComponentError: no parser has the name.
    """
    return _chosen(chat_format, settings.tool_call_parser, settings.reasoning_parser)


@lru_cache(16)
def _chosen(chat_format: ChatFormat, calls: str | None, reasoning: str | None) -> ReplyParser:
    template = chat_format.template_text
    by_template = _InTurn(
        _made(reasoning or _by_marks(_REASONING, template)),
        _made(calls or _by_marks(_CALLS, template)),
    )
    if calls is None and reasoning is None and has_response_template(chat_format):
        return _ByTokenizer(chat_format.tokenizer, otherwise=by_template)
    return by_template


def has_response_template(chat_format: ChatFormat) -> bool:
    """Return whether the tokenizer says how its replies are read."""
    return getattr(chat_format.tokenizer, "response_template", None) is not None


def _by_marks(table: dict[str, str], template: str) -> str | None:
    return next((name for mark, name in table.items() if mark in template), None)


def _made(name: str | None) -> ReplyParser | None:
    return None if name is None else get_manager().load("reply_parser", name)()


class _InTurn:
    """Reads the reasoning first, and the calls in what it leaves."""

    def __init__(self, *parsers: ReplyParser | None) -> None:
        self._parsers = [parser for parser in parsers if parser is not None]

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        """Return what the reply says."""
        parsed = ParsedReply(content=text)
        for parser in self._parsers:
            found = parser.parse(parsed.content, prompt=prompt, tools=tools)
            if found.is_malformed:
                return ParsedReply(content=text, is_malformed=True)
            parsed = ParsedReply(
                content=found.content,
                reasoning=found.reasoning if parsed.reasoning is None else parsed.reasoning,
                tool_calls=(*parsed.tool_calls, *found.tool_calls),
            )
        return parsed


class _ByTokenizer:
    """Reads by the tokenizer's own ``response_template``; where there are no tools, otherwise."""

    def __init__(self, tokenizer: Any, *, otherwise: ReplyParser) -> None:  # Any: transformers'
        self._tokenizer = tokenizer
        self._otherwise = otherwise

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        """Return what the reply says."""
        if not tools:
            return self._otherwise.parse(text, prompt=prompt, tools=tools)
        try:
            message = self._tokenizer.parse_response(
                text, prefix=prompt, tools=[dict(tool) for tool in tools]
            )
            return _of_message(message)
        except Exception:  # noqa: BLE001 -- whatever a template of others raises on a reply
            return ParsedReply(content=text, is_malformed=True)


def _of_message(message: dict[str, Any]) -> ParsedReply:  # Any: as the template made it
    reasoning = message.get("reasoning_content") or message.get("thinking")
    calls = [
        tool_call(call["function"], arguments="arguments")
        for call in message.get("tool_calls") or ()
    ]
    return ParsedReply(
        content=str(message.get("content") or "").strip(),
        reasoning=str(reasoning).strip() if reasoning else None,
        tool_calls=tuple(calls),
    )
