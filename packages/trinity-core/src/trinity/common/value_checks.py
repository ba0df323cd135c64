"""Check and convert what code and servers of others give: numbers, tokens, texts, sizes."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trinity.common.secrets import masked
from trinity.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor

__all__ = [
    "MAX_INFO",
    "MAX_MESSAGE",
    "MAX_NAME",
    "MAX_REPLY",
    "TokenLimits",
    "as_tensor",
    "bounded",
    "chain_of",
    "check_info",
    "is_of",
    "shortened",
    "shown",
    "text_of",
    "token_ids",
    "whole_number",
    "without_end",
]

T = TypeVar("T")
MAX_MESSAGE = 4_000  # letters of an error's text
MAX_NAME = 200  # letters of a metric's name
MAX_INFO = 4_000_000  # bytes of an experience's info, about
MAX_REPLY = 16_000_000  # bytes of the reply of a judge's server
_NUMBER = 8  # bytes
_AHEAD = 4_096  # letters: as long as a secret that the cut could fall into
_REST = 40  # letters that say how much was left out


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return the beginning of a text, and how much was left out.

    >>> shortened("x" * 100, 6)
    'xxxxxx (94 more letters)'
    """
    if len(text) <= limit + _REST:  # what is short already stays as it is
        return text
    begun = masked(text[: limit + _AHEAD])[:limit]  # a secret that is cut in two is no secret more
    return f"{begun} ({len(text) - limit:,} more letters)"


def shown(value: Any) -> str:  # Any: of a user's code
    """Return a value in one line of a message, without a text of all of it."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 80
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = 40
    return " ".join(f"{short.repr(value):.80}".split())


def bounded(error: BaseException) -> BaseException:
    """Shorten the texts that an error holds, and those before it: they are copied often."""
    for one in chain_of(error):
        one.args = tuple(shortened(arg) if isinstance(arg, str) else arg for arg in one.args)
    return error


def chain_of(error: BaseException, *, causes_only: bool = False) -> list[BaseException]:
    """Return an error and those before it, each once: ``raise error from error`` makes a circle."""
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            waiting += [None if causes_only else one.__context__, one.__cause__]
    return list(found.values())


def text_of(error: BaseException) -> str:
    """Return the text of an error of anybody's code in one line, shortened."""
    try:
        text = str(bounded(error))
    except Exception:  # noqa: BLE001 -- a user's `__str__`
        text = "<exception str() failed>"  # as tracebacks say it
    return " ".join(shortened(text).split())


def without_end(call: Callable[..., T], *args: Any) -> T:  # Any: what it takes
    """Call a plugin's code; a StopIteration that it lets out is no end of anything here.

    Raises:
        RuntimeError: it let one out; the place is the same.
    """
    try:
        return call(*args)
    except StopIteration as error:
        told = RuntimeError(f"StopIteration: {error}".removesuffix(": "))
        raise told.with_traceback(error.__traceback__) from error


def check_info(info: Mapping[str, Any], *, what: str) -> None:
    """Refuse the info of an experience that would fill memory and disk.

    Raises:
        WorkflowError: it is too large; the message names the largest entry.
    """
    if _size(info) <= MAX_INFO:
        return
    largest = max(info, key=lambda name: _size(info[name]))
    raise WorkflowError(
        f"{what}: info has more than {MAX_INFO // 10**6} MB, most of it in {shown(largest)}. Write "
        f"large data to a file, and its path to info."
    )


def _size(value: Any) -> int:
    """Return about how many bytes a value has; counting ends above the limit."""
    size, waiting = 0, [value]
    while waiting and size <= MAX_INFO:
        one = waiting.pop()
        if isinstance(one, (str, bytes, bytearray)):
            size += len(one)
        elif isinstance(one, Mapping):
            size += _NUMBER * len(one)
            waiting += [*one, *one.values()]
        elif isinstance(one, (list, tuple, set)):
            size += _NUMBER * len(one)
            if size <= MAX_INFO:
                waiting += one
        else:
            size += int(getattr(one, "nbytes", _NUMBER))
    return size


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLimits:
    """What a row of tokens may be, so that the model can be trained on it.

    Attributes:
        max_len: most tokens of prompt and response together.
        vocab: how many tokens the model has; None: not known here.
    """

    max_len: int
    vocab: int | None

    def problem(self, *, length: int, lowest: int, highest: int) -> str:
        """Return in words what is wrong with a row; an empty string if nothing.

        >>> TokenLimits(max_len=32, vocab=64).problem(length=3000, lowest=0, highest=7)[:49]
        'has 3,000 tokens, more than model.max_model_len 3'
        """
        if length > self.max_len:
            return (
                f"has {length:,} tokens, more than model.max_model_len {self.max_len:,}. Raise it, "
                f"or make prompt and response shorter: nothing is cut off silently."
            )
        if lowest >= 0 and (self.vocab is None or highest < self.vocab):
            return ""
        known = "token ids are 0 or more"
        if self.vocab is not None:
            known = f"the model knows tokens 0 to {self.vocab - 1}"
        return (
            f"holds the token {lowest if lowest < 0 else highest}, and {known}. Return the ids "
            f"that this run's engine sampled, without padding; rows of a file must be tokenised "
            f"with this model's tokenizer."
        )


def is_of(value: Any, dtype: torch.dtype) -> bool:  # Any: of a user's own code
    """Return whether it is a tensor of this type already; to ask costs a tenth of converting it."""
    return getattr(value, "dtype", None) is dtype and value.is_cpu


def as_tensor(value: Any, dtype: torch.dtype | None = None) -> Tensor:  # Any: of a user's own code
    """Return ``torch.as_tensor(value, dtype)`` on the CPU.

    Plain lists of whole numbers or of floats go by way of numpy, which reads them three times as
    fast; an exchange of an agent makes two.
    """
    import numpy as np
    import torch

    if type(value) in {list, tuple} and value and type(value[0]) in {int, float}:
        try:
            row = np.asarray(value)
        except (ValueError, OverflowError):  # it is no row of numbers: torch says so
            row = np.empty(0, dtype=object)
        if row.dtype == np.int64 or (row.dtype == np.float64 and dtype is not None):
            return torch.from_numpy(row).to(dtype or torch.int64)
    return torch.as_tensor(value, dtype=dtype, device="cpu")


def token_ids(value: Sequence[int] | Tensor, *, name: str) -> Tensor:
    """Return the ids as one row of int64.

    Raises:
        TypeError: they are no whole numbers; rounding would make other tokens of them.
        ValueError: they are no single row.
    """
    import torch

    if not isinstance(value, torch.Tensor) or not is_of(value, torch.int64):
        value = as_tensor(value)
    ids = value
    if ids.dtype != torch.int64:
        is_whole = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
        if not is_whole and ids.numel():  # a list of nothing is of floats
            raise TypeError(f"{name} holds {ids.dtype} numbers; token ids are whole numbers")
        ids = ids.to(torch.int64)
    if ids.dim() != 1:
        raise ValueError(f"{name} has the shape {list(ids.shape)}; it must be one row of token ids")
    return ids


def whole_number(prompt_length: Any) -> int:  # Any: of a user's own code
    """Return the number of prompt tokens.

    Raises:
        TypeError: it is no whole number.
    """
    try:
        if isinstance(prompt_length, bool):
            raise TypeError("true and false count nothing")
        return operator.index(prompt_length)
    except TypeError as error:
        kind = type(prompt_length).__name__
        raise TypeError(
            f"prompt_length is {prompt_length!r:.40}, a {kind}; it must be the whole number of "
            "prompt tokens"
        ) from error
