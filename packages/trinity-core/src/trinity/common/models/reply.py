"""From the text of a reply to a message: the types; the parsers stand beside this file."""

from trinity.common.ports.reply import ParsedReply, ReplyParser, ToolCall, new_call_id

__all__ = ["ParsedReply", "ReplyParser", "ToolCall", "new_call_id"]
