"""Hold replies to a JSON schema, a regular expression or a grammar, with llguidance.

V vocabulary of the model   B rows
"""

from __future__ import annotations

import copy
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trinity.common.generation.own_tokenizer import OwnTokenizer
    from trinity.common.ports import Structure

__all__ = ["Structures"]

_NUM_KEPT = 64  # compiled structures; an agent's tools seldom make more


class Structures:
    """Compiles structures, each once; thread-safe.

    Args:
        eos_V: which tokens end a reply.
        tokenizer: of the model.
    """

    def __init__(self, eos_V: Tensor, *, tokenizer: OwnTokenizer) -> None:
        self._eos_V = eos_V
        self._tokenizer = tokenizer
        self._compiling = threading.Lock()
        self._vocabulary: Any = None  # Any: llguidance may be missing
        self._compiled = lru_cache(maxsize=_NUM_KEPT)(self._compile)

    def check(self, structure: Structure) -> None:
        """Compile a structure.

        Raises:
            ModelError: it is bad, or the package or a tokenizer that fits it is missing.
        """
        with self._compiling:
            self._compiled(structure)

    def matcher(self, structure: Structure) -> Any:  # Any: llguidance may be missing
        """Return what follows one reply, told of each token by ``consume_token``."""
        with self._compiling:
            return self._compiled(structure).deep_copy()

    def allowed(self, matchers: Sequence[Any]) -> Tensor:
        """Return which tokens may come next, ``[B, V]``; without a matcher (None), all may."""
        import numpy as np
        import torch

        vocab = len(self._eos_V)
        allowed_BV = torch.ones(len(matchers), vocab, dtype=torch.bool)
        for row, matcher in enumerate(matchers):
            if matcher is not None:
                bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
                known = np.unpackbits(bits, bitorder="little")[:vocab]
                allowed_BV[row] = torch.from_numpy(known).bool()
        return allowed_BV.to(self._eos_V.device)

    def _compile(self, structure: Structure) -> Any:  # Any: llguidance may be missing
        llguidance = _llguidance()
        make_grammar = {
            "json_schema": llguidance.LLMatcher.grammar_from_json_schema,
            "regex": llguidance.LLMatcher.grammar_from_regex,
            "lark": llguidance.LLMatcher.grammar_from_lark,
        }
        if structure.kind not in make_grammar:
            raise ModelError(
                f"structure.kind is {structure.kind!r}; use one of {', '.join(make_grammar)}."
            )
        if self._vocabulary is None:
            self._vocabulary = self._read_vocabulary(llguidance)
        grammar = make_grammar[structure.kind](structure.text)
        matcher = llguidance.LLMatcher(self._vocabulary, grammar, log_level=0)
        if matcher.is_error():
            reason = " ".join(matcher.get_error().split())
            raise ModelError(f"structure is no {structure.kind} that can be followed: {reason}")
        return matcher

    def _read_vocabulary(self, llguidance: Any) -> Any:  # Any: it may be missing
        tokenizer = self._tokenizer.get(field="structure")
        if not tokenizer.is_fast:
            raise ModelError(
                "structure needs a tokenizer with a tokenizer.json, and the model has none."
            )
        backend = copy.copy(tokenizer.backend_tokenizer)
        backend.no_padding()
        backend.no_truncation()
        try:
            return llguidance.LLTokenizer(
                backend.to_str(),
                n_vocab=max(len(tokenizer), len(self._eos_V)),
                eos_token=self._eos_V.nonzero().squeeze(1).tolist() or None,
            )
        except ValueError as error:
            raise ModelError(
                f"structure cannot be followed with the tokenizer of this model: {error}"
            ) from error


def _llguidance() -> Any:  # Any: it may be missing
    try:
        import llguidance
    except ImportError as error:
        raise ModelError(
            "structure needs the package llguidance, which is not installed. "
            "Install it: pip install 'trinity-core[structured]'."
        ) from error
    return llguidance
