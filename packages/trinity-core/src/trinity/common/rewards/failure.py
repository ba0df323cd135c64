"""What is said of a reward function that fails: whose it is, where, and how it is called."""

from __future__ import annotations

import inspect
import traceback
from typing import TYPE_CHECKING

from trinity.common.value_checks import text_of

if TYPE_CHECKING:
    from trinity.common.rewards.base import RewardFn

__all__ = ["place_of_call", "reward_failure"]

CALLED = (
    "It is called with those of response, truth, prompt and the rest of reward_fn_args that its "
    "signature names, and returns a finite number for each name"
)


def reward_failure(reward_fn: RewardFn, error: BaseException) -> str:
    """Return one line: the class, the file and the line in it, the error, the contract."""
    cls = type(reward_fn)
    where = _where(cls, error)
    said = f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")
    return f"reward function {cls.__name__} ({where}): {said}. {CALLED}."


def place_of_call(cls: type) -> str:
    """Return file and line of the call of a class, else its module."""
    code = getattr(inspect.unwrap(cls.__call__), "__code__", None)
    if code is None:
        return cls.__module__
    return f"{inspect.getsourcefile(code) or code.co_filename}:{code.co_firstlineno}"


def _where(cls: type[RewardFn], error: BaseException) -> str:
    """Return the innermost line of the class's file that the error passed, else its call."""
    code = getattr(cls.__call__, "__code__", None)
    if code is None:
        return cls.__module__
    file = inspect.getsourcefile(code) or code.co_filename
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f"{file}:{lines[-1] if lines else code.co_firstlineno}"
