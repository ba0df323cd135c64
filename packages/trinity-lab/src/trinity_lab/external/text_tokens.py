"""Chats and replies as token ids of a model whose tokenizer nobody has: the bytes of their text.

The tokenizer's chat template writes a chat as one line of JSON, which the engine reads back.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["END", "NO_LIMIT", "ROOM", "TOKENIZER", "chat_of", "tokens_of"]

ROOM = 2**24  # bytes of a chat: more than any API takes
NO_LIMIT = ROOM // 2  # bytes of a reply, where nobody said how long one may be
END = 256  # the end token; the ids below are bytes
#: the folder of the tokenizer; it writes the end token as a character that JSON escapes
TOKENIZER = Path(__file__).parent / "tokenizer"


def chat_of(token_ids: Sequence[int]) -> dict[str, Any]:
    """Return the chat of a prompt: ``messages``, ``tools``, ``enable_thinking``."""
    chat: dict[str, Any] = json.loads(bytes(token_ids))
    return chat


def tokens_of(text: str) -> tuple[int, ...]:
    """Return a text's ids."""
    return tuple(text.encode())
