"""The named parsers of reasoning: what stands between ``<think>`` and ``</think>``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.ports.reply import ParsedReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import Message

__all__ = ["DeepseekR1Parser", "Qwen3Parser"]

BEGIN, END = "<think>", "</think>"


class Qwen3Parser:
    """Reads reasoning that the prompt or the reply opens; without it a reply is content.

    Reasoning that does not end is all there is: such a reply was cut.
    """

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        """Return reasoning and content."""
        body = text.lstrip()
        if not _is_open(prompt) and not body.startswith(BEGIN):
            return ParsedReply(content=text)
        return _parted(body.removeprefix(BEGIN))


class DeepseekR1Parser:
    """Reads every reply as reasoning up to its end, whoever opened it.

    Only where the prompt has closed the reasoning already, a reply is content.
    """

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        """Return reasoning and content."""
        if prompt.rstrip().endswith(END):
            return ParsedReply(content=text)
        return _parted(text.lstrip().removeprefix(BEGIN))


def _is_open(prompt: str) -> bool:
    return prompt.rstrip().endswith(BEGIN)


def _parted(text: str) -> ParsedReply:
    reasoning, _, content = text.partition(END)
    return ParsedReply(content=content.strip(), reasoning=reasoning.strip() or None)
