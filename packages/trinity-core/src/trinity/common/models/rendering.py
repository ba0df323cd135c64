"""A chat template applied to messages that are plain data already.

``apply_chat_template`` of transformers copies all that a template sees, message by message, so that
no object of somebody's code stands in the sandbox. What came as JSON holds no such object: the
template, which may change nothing that it sees, reads it where it is.
"""

from __future__ import annotations

from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transformers import PreTrainedTokenizerBase

__all__ = ["rendered_plain"]

_SCALARS = frozenset([str, int, float, bool, type(None)])
_REASONING = frozenset(["reasoning_content", "thinking", "reasoning"])
Json = dict[str, Any]  # Any: what JSON holds


def rendered_plain(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    chat_template: str | None,
    tools: list[Any],
    add_generation_prompt: bool,
    options: Mapping[str, Any],
) -> str | None:
    """Return what ``apply_chat_template`` would; None: leave it to that.

    Args:
        tokenizer: of transformers.
        messages: that are rendered.
        chat_template: Jinja text in place of the tokenizer's; None: the tokenizer's.
        tools: descriptions.
        add_generation_prompt: end with the words that open the assistant's turn.
        options: further names that the template reads.
    """
    from transformers.utils import chat_template_utils

    compiled = getattr(chat_template_utils, "_compile_jinja_template", None)
    if compiled is None or not _takes_plain(tokenizer) or not _own_names().isdisjoint(options):
        return None
    if not messages or not all(map(_is_plain, messages)) or not _is_plain([tools, dict(options)]):
        return None
    if any(None in message.values() for message in messages) and not _drops_none(tokenizer):
        return None
    template = compiled(tokenizer.get_chat_template(chat_template, tools or None))
    text = template.render(
        messages=[_as_template_reads(message, chat_template_utils) for message in messages],
        tools=tools or None,
        documents=None,
        add_generation_prompt=add_generation_prompt,
        **{**tokenizer.special_tokens_map, **options},
    )
    return str(text)


def _takes_plain(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the tokenizer renders as all do: some have a way of their own."""
    from transformers import PreTrainedTokenizerBase

    own = type(tokenizer).apply_chat_template
    return own is PreTrainedTokenizerBase.apply_chat_template


@lru_cache(1)
def _drops_none(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a template sees nothing of what is None; older transformers show it."""
    nothing: list[Any] = [{"role": "user", "content": None}]
    said = tokenizer.apply_chat_template(
        nothing,
        chat_template="{{ messages[0].content is defined }}",
        tokenize=False,
    )
    return str(said) == "False"


@lru_cache(1)
def _own_names() -> frozenset[str]:
    """Return which names ``apply_chat_template`` does not just hand on to the template."""
    from transformers import PreTrainedTokenizerBase
    from transformers.utils import chat_template_utils

    takes = (PreTrainedTokenizerBase.apply_chat_template, chat_template_utils.render_jinja_template)
    return frozenset(name for one in takes for name in signature(one).parameters) | {"messages"}


def _is_plain(value: Any) -> bool:  # Any: whatever a message may hold
    """Return whether JSON could hold it."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict:
        return all(
            type(k) is str and (type(v) in _SCALARS or _is_plain(v)) for k, v in value.items()
        )
    return kind is list and all(map(_is_plain, value))


def _as_template_reads(message: Mapping[str, Any], utils: Any) -> Mapping[str, Any]:
    """Return the message without what is None, its reasoning by every name (Any: a module)."""
    if None in message.values():
        message = {name: value for name, value in message.items() if value is not None}
    alias = getattr(utils, "_alias_reasoning_fields", None)
    if alias is None or _REASONING.isdisjoint(message):
        return message
    return dict(alias([message])[0])
