"""Text to token ids: what transformers does around its fast tokenizers, without what nobody reads.

A call of ``tokenizer.encode`` makes offsets, masks and the text of each token, too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

__all__ = ["Tokens"]

_OWN = ("encode", "_encode_plus", "decode", "_decode")  # what a tokenizer may do in its own way


class Tokens:
    """Encodes and decodes with a tokenizer; many threads may share one.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._backend = _backend(tokenizer)
        self._lock = threading.Lock()  # a fast tokenizer fails when two threads use it at once

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of the text, as ``tokenizer.encode`` does."""
        with self._lock:
            backend = self._backend
            if backend is None or self._is_set_up:
                return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))
            encoded = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
            return list(encoded[0].ids)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of the ids, as ``tokenizer.decode`` does."""
        ids = list(token_ids)
        with self._lock:
            if self._backend is None or self._tokenizer.clean_up_tokenization_spaces:
                return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))
            return str(self._backend.decode(ids, skip_special_tokens=skip_special_tokens))

    @property
    def _is_set_up(self) -> bool:
        """Return whether something is set that ``tokenizer.encode`` would set back first."""
        backend = self._backend
        return (
            backend.truncation is not None
            or backend.padding is not None
            or backend.encode_special_tokens != self._tokenizer.split_special_tokens
        )


def _backend(tokenizer: PreTrainedTokenizerBase) -> Any:  # Any: of the package tokenizers
    """Return what a fast tokenizer calls; None: this one has ways of its own."""
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    kind = type(tokenizer)
    is_plain = all(getattr(kind, name) is getattr(PreTrainedTokenizerFast, name) for name in _OWN)
    return tokenizer.backend_tokenizer if is_plain else None
