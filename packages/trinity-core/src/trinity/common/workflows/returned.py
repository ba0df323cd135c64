"""What the methods of a user's workflow return, checked."""

from __future__ import annotations

from typing import Any

from trinity.common.size_limits import shown
from trinity.errors import WorkflowError

__all__ = ["number_of", "reward_of", "whether"]


def number_of(value: Any, *, what: str, remedy: str) -> float:  # Any: of the user's own code
    """Return the number that a value is: a number, or a tensor or array of one.

    Args:
        value: what the user's code gave.
        what: who gave it, for the message.
        remedy: what to do instead, for the message.

    Raises:
        WorkflowError: it is no number.
    """
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError("a text is no number, even if it reads like one")
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise WorkflowError(f"{what} is {shown(value)}, which is no number. {remedy}") from error


def reward_of(value: Any, *, what: str) -> float | None:  # Any: of the user's own code
    """Return the number that a value is; None stays None, as another signal may stand for it.

    Args:
        value: a number, or a tensor or array of one number.
        what: who gave it, for the message.

    Raises:
        WorkflowError: it is no number.

    >>> reward_of(True, what="reward()")
    1.0
    """
    if value is None:
        return None
    remedy = "Give a finite number, or raise trinity.errors.EnvError if the run cannot be judged."
    return number_of(value, what=what, remedy=remedy)


def whether(goes_on: Any) -> bool:  # Any: of the user's own code
    """Return what ``step`` says.

    Raises:
        WorkflowError: it is neither true nor false: None, or a tuple as an environment returns it.
    """
    if goes_on is None or goes_on not in (True, False):
        raise WorkflowError(
            f"step() returned {shown(goes_on)}. Return True to go on, False to stop."
        )
    return bool(goes_on)
