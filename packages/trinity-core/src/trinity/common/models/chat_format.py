"""The text and the token ids of a conversation: a tokenizer with its chat template."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import threading
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.models.pretrained import load_pretrained
from trinity.errors import ConfigError, ModelError, TemplateRefusesError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from trinity.common.config.model import ModelConfig

Message = Mapping[str, Any]  # Any: role and content are text, tool calls are nested

_SHORT_ID = 9
_NUM_SHARED = 16  # messages: longer chats are rendered anew each time
_SCALARS = frozenset([str, int, float, bool, type(None)])
_REASONING = frozenset(["reasoning_content", "thinking", "reasoning"])
# what a tokenizer may do in its own way
_METHODS = ("encode", "_encode_plus", "decode", "_decode")
_APPEND = ".append("  # in a template; nothing that the user has may change by it
_NUM_KEPT = 256  # texts and their tokens: the runs of a group begin with the same prompt


class ChatFormat:
    """Renders, encodes and decodes; many threads may share one.

    Args:
        tokenizer: of transformers.
        chat_template: Jinja text in place of the tokenizer's; None: the tokenizer's.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, chat_template: str | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self._chat_template = chat_template
        self._backend = _backend(tokenizer)
        self._using = threading.Lock()  # a fast tokenizer fails when two threads use it at once
        self._texts: dict[bytes, str] = {}  # what was rendered last, by what was asked for
        self._lock = threading.Lock()
        self._added_tokens = tuple(tokenizer.get_added_vocab())
        self._special_tokens = tuple(tokenizer.all_special_tokens)
        self._reasoning_key = _reasoning_key(self.template_text)
        self._encoded = lru_cache(_NUM_KEPT)(self._encode)

    @classmethod
    def load(
        cls,
        model_path: str,
        *,
        chat_template: str | None = None,
        chat_template_path: str | None = None,
        trust_remote_code: bool = False,
    ) -> ChatFormat:
        """Return the chat format of a model folder or Hugging Face id.

        Args:
            model_path: where the tokenizer is.
            chat_template: Jinja text in place of the model's.
            chat_template_path: a file that holds it; wins over ``chat_template``.
            trust_remote_code: run code that comes with the model.

        Raises:
            ModelError: there is no tokenizer.
            ConfigError: the template file is missing.
        """
        from transformers import AutoTokenizer

        if chat_template_path:
            chat_template = _read_template(Path(chat_template_path))
        tokenizer = load_pretrained(
            AutoTokenizer.from_pretrained, model_path, trust_remote_code=trust_remote_code
        )
        return cls(tokenizer, chat_template=chat_template)

    @classmethod
    def from_config(cls, model: ModelConfig) -> ChatFormat:
        """Return the chat format that the section ``model`` names."""
        return cls.load(
            model.model_path,
            chat_template=model.custom_chat_template,
            chat_template_path=model.chat_template_path,
            trust_remote_code=model.trust_remote_code,
        )

    @property
    def template_text(self) -> str:
        """Return the text of the chat template, or of all that the tokenizer has; empty: none."""
        template = self._chat_template or self.tokenizer.chat_template or ""
        return template if isinstance(template, str) else "\n".join(map(str, template.values()))

    @property
    def eos_token_ids(self) -> list[int]:
        """Return the tokenizer's end token, if it has one."""
        token = self.tokenizer.eos_token_id
        return [] if token is None else [int(token)]

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Message] | None = None,
        enable_thinking: bool | None = None,
        options: Mapping[str, Any] | None = None,
        is_of_one_run: bool = False,
    ) -> str:
        """Return the conversation as text.

        Args:
            messages: each with ``role`` and ``content``.
            add_generation_prompt: end with the words that open the assistant's turn, or, where the
                last message is the assistant's, with that message left open.
            tools: descriptions for templates that know tools.
            enable_thinking: switch of templates that know thinking; None: theirs.
            options: further names that the template reads (Any: as it wants them).
            is_of_one_run: no other run says the same, so that the text is not kept for it.

        Raises:
            ModelError: there is no template, or it refuses the messages.
        """
        if not (self._chat_template or self.tokenizer.chat_template):
            raise ModelError(
                f"the tokenizer of {self.tokenizer.name_or_path!r} has no chat template. "
                f"Set model.custom_chat_template or model.chat_template_path."
            )
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        asked = [
            [self._readable(message) for message in messages],
            [dict(tool) for tool in tools or ()],
            add_generation_prompt,
            {**(options or {}), **thinking},
        ]
        if is_of_one_run or len(messages) > _NUM_SHARED:
            return self._render(asked)
        try:
            key = hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).digest()
        except (TypeError, ValueError):  # messages may hold what JSON does not
            return self._render(asked)
        text = self._texts.get(key)
        return self._kept(key, self._render(asked)) if text is None else text

    def _kept(self, key: bytes, text: str) -> str:
        with self._lock:
            self._texts[key] = text
            if len(self._texts) > _NUM_KEPT:
                del self._texts[next(iter(self._texts))]
        return text

    def _readable(self, message: Message) -> dict[str, Any]:
        """Return the message with its reasoning where this template looks for it."""
        if type(message) is dict and "reasoning_content" not in message:
            return message
        made = dict(message)
        if "reasoning_content" in made and self._reasoning_key not in made:
            made[self._reasoning_key] = made.pop("reasoning_content")
        return made

    def _render(self, asked: list[Any]) -> str:
        messages, tools, add_generation_prompt, options = asked
        try:
            return self._applied(messages, tools, add_generation_prompt, options)
        except ModelError:
            short = _with_short_ids(messages)
            if short == messages:
                raise
            return self._applied(short, tools, add_generation_prompt, options)

    def _applied(
        self,
        messages: list[dict[str, Any]],
        tools: list[Any],
        add_generation_prompt: bool,  # noqa: FBT001 -- of one caller
        options: dict[str, Any],
    ) -> str:
        from jinja2 import TemplateError

        goes_on = add_generation_prompt and reply_prefix(messages) != ""
        try:
            text: Any = None  # of transformers' many kinds of answers it is a string
            if goes_on:
                _compiled(self.template_text)  # which transformers keeps, and renders below
            else:
                text = rendered_plain(
                    self.tokenizer,
                    messages,
                    chat_template=self._chat_template,
                    tools=tools,
                    add_generation_prompt=add_generation_prompt,
                    options=options,
                )
            if text is None:
                text = self.tokenizer.apply_chat_template(
                    messages,
                    chat_template=self._chat_template,
                    tools=tools or None,
                    add_generation_prompt=add_generation_prompt and not goes_on,
                    continue_final_message=goes_on,
                    tokenize=False,
                    **options,
                )
        except (TemplateError, TypeError, KeyError, ValueError, AttributeError) as error:
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise TemplateRefusesError(
                f"the chat template refuses the messages (roles: {roles or 'none'}): {error}. "
                f"Each message needs role and content, in an order that the template knows."
            ) from error
        return str(text)

    def reads(self, name: str) -> bool:
        """Return whether the chat template speaks of a name."""
        return re.search(rf"\b{re.escape(name)}\b", self.template_text) is not None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of the text; a rendered one brings its special tokens along."""
        return self._encoded(text, add_special_tokens).tolist()

    def _encode(self, text: str, add_special_tokens: bool) -> array[int]:  # noqa: FBT001 -- cached
        with self._using:
            backend = self._backend
            if backend is None or self._is_set_up:
                ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
            else:  # ``encode`` would make offsets, masks and the text of each token, too
                [made] = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
                ids = made.ids
            return array("i", ids)

    @property
    def _is_set_up(self) -> bool:
        """Return whether something is set that ``tokenizer.encode`` would set back first."""
        backend = self._backend
        return (
            backend.truncation is not None
            or backend.padding is not None
            or backend.encode_special_tokens != self.tokenizer.split_special_tokens
        )

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of the ids."""
        ids = list(token_ids)
        with self._using:
            if self._backend is None or self.tokenizer.clean_up_tokenization_spaces:
                return str(self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))
            return str(self._backend.decode(ids, skip_special_tokens=skip_special_tokens))

    def ends_with_added_token(self, text: str) -> bool:
        """Return whether the text ends with a token that no ordinary text is cut into."""
        return text.endswith(self._added_tokens)

    def without_special_tokens(self, text: str) -> str:
        """Return the text without those of the special tokens."""
        for token in self._special_tokens:
            text = text.replace(token, "")
        return text


def reply_prefix(messages: Sequence[Message]) -> str:
    """Return how the reply begins: what a last message of the assistant says, else nothing.

    >>> reply_prefix([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "As"}])
    'As'
    """
    last = messages[-1] if messages else {}
    content = last.get("content")
    return content if last.get("role") == "assistant" and isinstance(content, str) else ""


def _with_short_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with ids of tool calls of nine letters: some templates take no others."""
    made = []
    for message in messages:
        short = dict(message)
        if isinstance(short.get("tool_call_id"), str):
            short["tool_call_id"] = short["tool_call_id"][-_SHORT_ID:]
        if isinstance(short.get("tool_calls"), list):
            short["tool_calls"] = [
                {**call, "id": call["id"][-_SHORT_ID:]} if isinstance(call.get("id"), str) else call
                for call in short["tool_calls"]
            ]
        made.append(short)
    return made


def _reasoning_key(template: str) -> str:
    """Return under which name a template reads the reasoning of a message."""
    names = ("reasoning_content", "thinking", "reasoning")
    read = (name for name in names if re.search(rf"""\.{name}\b|['"]{name}['"]""", template))
    return next(read, names[0])


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"model.chat_template_path: {str(path)!r} cannot be read ({error.strerror}). "
            f"Give a file that holds a Jinja chat template."
        ) from error


def rendered_plain(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    chat_template: str | None,
    tools: list[Any],
    add_generation_prompt: bool,
    options: Mapping[str, Any],
) -> str | None:
    """Return what ``apply_chat_template`` would of plain data; None: leave it to that.

    That copies all that a template sees, message by message, so that no object of somebody's code
    stands in the sandbox. What came as JSON holds no such object: the template, which may change
    nothing that it sees, reads it where it is.
    """
    from transformers.utils import chat_template_utils

    source = tokenizer.get_chat_template(chat_template, tools or None)
    template = _compiled(source)
    if template is None or not _takes_plain(tokenizer) or not _own_names().isdisjoint(options):
        return None
    if not messages or not all(map(_is_plain, messages)) or not _is_plain([tools, dict(options)]):
        return None
    if any(None in message.values() for message in messages) and not _drops_none(tokenizer):
        return None
    if _APPEND in source:
        messages, tools = copy.deepcopy((messages, tools))
    text = template.render(
        messages=[_as_template_reads(message, chat_template_utils) for message in messages],
        tools=tools or None,
        documents=None,
        add_generation_prompt=add_generation_prompt,
        **{**tokenizer.special_tokens_map, **options},
    )
    return str(text)


@lru_cache(16)
def _compiled(source: str) -> Any:  # Any: jinja's template; None: transformers has no such function
    """Return the template; it may append to lists, as those of some models do to their own."""
    from transformers.utils import chat_template_utils

    compiled = getattr(chat_template_utils, "_compile_jinja_template", None)
    template = compiled and compiled(source)
    if template is not None and _APPEND in source:
        known = template.environment.is_safe_attribute
        template.environment.is_safe_attribute = lambda value, name, attribute: (
            (type(value) is list and name == "append") or known(value, name, attribute)
        )
    return template


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


def _backend(tokenizer: PreTrainedTokenizerBase) -> Any:  # Any: of the package tokenizers
    """Return what a fast tokenizer calls; None: this one has ways of its own."""
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    kind = type(tokenizer)
    is_plain = all(
        getattr(kind, name) is getattr(PreTrainedTokenizerFast, name) for name in _METHODS
    )
    return tokenizer.backend_tokenizer if is_plain else None
