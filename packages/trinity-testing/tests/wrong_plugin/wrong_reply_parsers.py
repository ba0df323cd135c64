"""Parsers of replies with one mistake each."""

import json

from trinity.common.models.reply import HermesParser, ParsedReply, ToolCall

MARK = "CALL "


class RaisesOnBadJson:
    """Reads the arguments without looking whether they are JSON."""

    def parse(self, text, *, prompt, tools):
        if not tools or not text.startswith(MARK):
            return ParsedReply(content=text)
        name, _, written = text.removeprefix(MARK).partition(" ")
        return ParsedReply(
            content="", tool_calls=(ToolCall(name=name, arguments=json.loads(written)),)
        )


class RepairsACall:
    """Leaves out what it cannot read."""

    def parse(self, text, *, prompt, tools):
        parsed = HermesParser().parse(text, prompt=prompt, tools=tools)
        if not parsed.is_malformed:
            return parsed
        return ParsedReply(content=text.partition("<tool_call>")[0], is_malformed=True)


class NumbersItsCalls:
    """Counts the calls of a reply."""

    def parse(self, text, *, prompt, tools):
        parsed = HermesParser().parse(text, prompt=prompt, tools=tools)
        calls = tuple(
            ToolCall(name=call.name, arguments=call.arguments, id=f"call_{number}")
            for number, call in enumerate(parsed.tool_calls)
        )
        return ParsedReply(
            content=parsed.content, tool_calls=calls, is_malformed=parsed.is_malformed
        )


class IsSilentWithoutTools:
    """Gives no content where there are no tools."""

    def parse(self, text, *, prompt, tools):
        return ParsedReply(content=text if tools else "")
