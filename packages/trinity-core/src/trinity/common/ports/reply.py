"""What a reply says: its content, its reasoning, the tools that it calls."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ParsedReply", "ReplyParser", "ToolCall", "new_call_id"]


def new_call_id() -> str:
    """Return an id of a tool call that nobody can guess: ``call_`` and 24 hex digits."""
    return "call_" + secrets.token_hex(12)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """One call of a tool, as the model wrote it."""

    name: str
    arguments: dict[str, Any]  # Any: as the tool's own schema says
    id: str = field(default_factory=new_call_id)

    def message(self) -> dict[str, Any]:
        """Return it as an entry of a message's ``tool_calls``; the arguments are an object."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedReply:
    """A reply as a message of the assistant."""

    content: str
    reasoning: str | None = None  # None: it holds none
    tool_calls: tuple[ToolCall, ...] = ()
    is_malformed: bool = False  # it begins a call that is none: all of it is content

    def message(self) -> dict[str, Any]:
        """Return it as chat templates read it, without the keys that it has nothing for."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.message() for call in self.tool_calls]
        return message


class ReplyParser(Protocol):
    """Reads a reply of the model; many threads use one. Made without arguments."""

    def parse(
        self,
        text: str,
        *,
        prompt: str,
        tools: Sequence[Mapping[str, Any]],  # Any: a tool's description, as chat templates take it
    ) -> ParsedReply:
        """Return what the reply says; it never raises, whatever the text.

        Args:
            text: of the reply with its special tokens, without the token that ended it.
            prompt: the text before it: it may have opened the model's thoughts.
            tools: that the model was told of; none: it calls none, and such a text is content.
        """
