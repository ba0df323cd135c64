"""Read a component's arguments from its constructor."""

from __future__ import annotations

import inspect
from typing import Any, get_args

from trinity.errors import did_you_mean

__all__ = ["WithDefaults", "check_choice"]


class WithDefaults:
    """Base of every component whose constructor's signature is the list of its options."""

    @classmethod
    def default_args(cls) -> dict[str, Any]:  # Any: each component's own options
        """Return the default of each option of the constructor that has one."""
        parameters = inspect.signature(cls).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def check_choice(name: str, value: object, choices: object) -> None:
    """Refuse a value that is none of the words of a ``Literal``.

    >>> from typing import Literal
    >>> check_choice("level", "grup", Literal["group", "batch"])
    Traceback (most recent call last):
    ...
    ValueError: level is 'grup'. Did you mean 'group'? Choices: 'group', 'batch'.
    """
    words = get_args(choices)
    if value in words:
        return
    listed = ", ".join(repr(word) for word in words)
    hint = did_you_mean(str(value), [str(word) for word in words])
    raise ValueError(f"{name} is {value!r}.{hint} Choices: {listed}.")
