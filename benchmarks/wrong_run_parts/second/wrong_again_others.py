"""Wrong priorities and reply parsers."""

from __future__ import annotations

import json
from collections import Counter

from trinity.common.models.reply import ParsedReply, ToolCall
from trinity.common.ports import PriorityFn


class JudgesLatePriorityFn(PriorityFn):
    """Changes what it judges."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, experiences):
        first = experiences[0]
        self.counts[first.eid.uid] += 1
        if self.counts[first.eid.uid] >= 3:
            first.reward = 0.0
            first.advantages.zero_()
        return -float(first.info.get("use_count", 0)), True


class KeepsNothingPriorityFn(PriorityFn):
    """Wants none of them."""

    def __call__(self, experiences):
        return 1.0, False


class RaisesReplyParser:
    """Does not expect what models write."""

    def parse(self, text, *, prompt, tools):
        if tools and text.startswith("CALL "):
            call = json.loads(text.removeprefix("CALL "))
            return ParsedReply(content="", tool_calls=(ToolCall(name="run", arguments=call),))
        if tools and text.startswith("<tool_call>"):
            json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        return ParsedReply(content=text)


class LosesTextReplyParser:
    """Thinks of tools alone."""

    def parse(self, text, *, prompt, tools):
        return ParsedReply(content=text if tools else "")


class RepairsReplyParser:
    """Guesses what a call would have been."""

    def parse(self, text, *, prompt, tools):
        if not tools or "<tool_call>" not in text:
            return ParsedReply(content=text)
        before, _, written = text.partition("<tool_call>")
        written = written.partition("</tool_call>")[0].strip()
        for end in ("", "}", "}}", '"}}'):
            try:
                call = json.loads(written + end)
            except (ValueError, RecursionError):
                continue
            if isinstance(call, dict) and isinstance(call.get("arguments", {}), dict):
                named = ToolCall(name=str(call.get("name")), arguments=call.get("arguments", {}))
                return ParsedReply(content=before, tool_calls=(named,))
        return ParsedReply(content=text, is_malformed=True)
