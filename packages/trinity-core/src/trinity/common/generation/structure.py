"""Hold replies to a JSON schema, a regular expression or a grammar, with llguidance.

V vocabulary of the model   B rows
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trinity.common.generation.own_tokenizer import OwnTokenizer
    from trinity.common.ports import Structure

__all__ = ["Compiled", "Structures"]

_NUM_KEPT = 64  # compiled structures; an agent's tools seldom make more
_NUM_AT_ONCE = 2  # long structures that are compiled at a time
_LONG = 4096  # characters; what is shorter is compiled in milliseconds


class Compiled:
    """A structure that replies can be held to.

    Args:
        first: stands at the beginning, and stays there (Any: llguidance may be missing).
    """

    def __init__(self, first: Any) -> None:
        self._first = first

    def matcher(self) -> Any:  # Any: llguidance may be missing
        """Return what follows one reply, told of each token by ``consume_token``."""
        return self._first.deep_copy()


class Structures:
    """Compiles structures, each once; thread-safe, and nobody waits for another's structure.

    Args:
        eos_V: which tokens end a reply.
        tokenizer: of the model.
    """

    def __init__(self, eos_V: Tensor, *, tokenizer: OwnTokenizer) -> None:
        self._eos_V = eos_V
        self._tokenizer = tokenizer
        self._reading = threading.Lock()
        self._vocabulary: Any = None  # Any: llguidance may be missing
        self._changing = threading.Lock()  # held for a look, never while something is compiled
        self._known: OrderedDict[Structure, Future[Compiled]] = OrderedDict()
        self._places = threading.Semaphore(_NUM_AT_ONCE)

    def compiled(self, structure: Structure) -> Future[Compiled]:
        """Return the compiled structure; a long one is compiled in a thread of its own.

        The future of a long one may give a ``ModelError`` later: it is bad.

        Raises:
            ModelError: it is short and bad, or the package or a tokenizer that fits it is missing.
        """
        grammar = _grammar_of(structure)
        with self._changing:
            found = self._known.get(structure)
            is_new = found is None
            if found is None:
                found = self._known[structure] = Future()
            self._known.move_to_end(structure)
            while len(self._known) > _NUM_KEPT:
                self._known.popitem(last=False)
        is_long = len(structure.text) > _LONG
        if is_new and is_long:
            work = partial(self._compile_in_turn, structure, grammar, found)
            threading.Thread(target=work, name="trinity-structure", daemon=True).start()
        elif is_new:
            self._compile(structure, grammar, found)
        if not is_long:
            found.result()
        return found

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

    def _compile_in_turn(self, *what: Any) -> None:  # Any: as _compile takes them
        with self._places:
            self._compile(*what)

    def _compile(self, structure: Structure, grammar: str, found: Future[Compiled]) -> None:
        try:
            found.set_result(Compiled(self._first(structure, grammar)))
        except BaseException as error:  # llguidance is Rust, whose panics are no Exception
            with self._changing:
                self._known.pop(structure, None)
            found.set_exception(_as_model_error(error))
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise

    def _first(self, structure: Structure, grammar: str) -> Any:  # Any: of llguidance
        llguidance = _llguidance()
        with self._reading:
            if self._vocabulary is None:
                self._vocabulary = self._read_vocabulary(llguidance)
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


def _grammar_of(structure: Structure) -> str:
    matcher = _llguidance().LLMatcher
    make_grammar = {
        "json_schema": matcher.grammar_from_json_schema,
        "regex": matcher.grammar_from_regex,
        "lark": matcher.grammar_from_lark,
    }
    if structure.kind not in make_grammar:
        raise ModelError(
            f"structure.kind is {structure.kind!r}; use one of {', '.join(make_grammar)}."
        )
    grammar: str = make_grammar[structure.kind](structure.text)
    return grammar


def _as_model_error(error: BaseException) -> ModelError:
    if isinstance(error, ModelError):
        return error
    told = ModelError(f"structure cannot be compiled: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told


def _llguidance() -> Any:  # Any: it may be missing
    try:
        import llguidance
    except ImportError as error:
        raise ModelError(
            "structure needs the package llguidance, which is not installed. "
            "Install it: pip install 'trinity-core[structured]'."
        ) from error
    return llguidance
