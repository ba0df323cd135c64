"""A row of plain text becomes an experience: pre-training goes on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.buffer.formatter import as_messages
from trinity.common.experience import Experience
from trinity.common.row_keys import no_such_key
from trinity.errors import DataError

if TYPE_CHECKING:
    from trinity.common.config import FormatConfig
    from trinity.common.models.chat_format import ChatFormat


def text_of_row(
    row: dict[str, Any],  # Any: somebody else's data
    *,
    chat_format: ChatFormat,
    keys: FormatConfig,
    origin: str,
) -> Experience:
    """Return the experience of a text: each token but the first is learned, and the end token.

    The text is that of ``prompt_key``, with the one of ``response_key`` behind it where the row has
    it; messages are rendered by the chat template.

    Raises:
        DataError: the row lacks its key, or the text is empty; the message names row and key.
    """
    if keys.prompt_type == "messages" and keys.messages_key in row:
        messages = as_messages(row[keys.messages_key], role="user")
        text = chat_format.render(messages, add_generation_prompt=False)
        tokens = chat_format.encode(text)
    elif keys.prompt_key in row:
        text = f"{row[keys.prompt_key]}{row.get(keys.response_key) or ''}"
        tokens = [*chat_format.encode(text), *chat_format.eos_token_ids]
    else:
        wanted = "prompt_key"
        raise DataError(no_such_key(origin, key=keys.prompt_key, row=row, setting=wanted))
    if len(tokens) < 2:
        raise DataError(f"{origin}: the text is empty. Remove the row.")
    return Experience(
        tokens=tokens,  # type: ignore[arg-type] # a list becomes a tensor
        prompt_length=1,
        action_mask=[True] * (len(tokens) - 1),  # type: ignore[arg-type]
        response_text=text,
    )
