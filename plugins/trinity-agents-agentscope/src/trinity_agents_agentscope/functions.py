"""The functions that a user gives: what they are called with, and whose their errors are."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, TrinityError, WorkflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["UserFunction", "user_function"]


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFunction:
    """A function of ``workflow_args``."""

    role: str  # workflow_func or judge_func
    function: Callable[..., Any]  # Any: what it returns is checked by who calls
    names: frozenset[str]  # of its parameters

    @property
    def label(self) -> str:
        """Return what messages call it.

        >>> UserFunction(role="judge_func", function=len, names=frozenset()).label
        'judge_func len'
        """
        named = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"{self.role} {named}"

    async def called(self, **offered: Any) -> Any:  # Any: each of its own type
        """Return what the function gives for those arguments that it names.

        Raises:
            WorkflowError: it raised; the message says what and where. Trinity's own errors pass.
        """
        arguments = {name: value for name, value in offered.items() if name in self.names}
        try:
            returned = self.function(**arguments)
            return await returned if inspect.isawaitable(returned) else returned
        except TrinityError:
            raise
        except Exception as error:  # the boundary around a user's code
            text = " ".join(str(error).split())
            message = f"{self.label} raised {type(error).__name__}{_place(error)}: {text}"
            raise WorkflowError(message) from error


def user_function(
    arguments: Mapping[str, Any], role: str, *, needed: tuple[str, ...], further: tuple[str, ...]
) -> UserFunction:
    """Return a function of ``workflow_args``.

    Args:
        arguments: ``workflow_args`` (Any: of the user).
        role: its key.
        needed: parameters that it must have.
        further: parameters that it may have.

    Raises:
        ConfigError: there is none, or it cannot be called with these.
    """
    function = arguments.get(role)
    if not callable(function):
        raise ConfigError(
            f"workflow_args.{role} is {function!r:.60}, which is no function. Give one, as "
            f"agentscope.tuner.tune({role}=...) does."
        )
    parameters = inspect.signature(function).parameters
    found = UserFunction(role=role, function=function, names=frozenset(parameters))
    lacking = [name for name in needed if name not in parameters]
    known = {*needed, *further}
    strange = [
        name
        for name, parameter in parameters.items()
        if name not in known and parameter.default is parameter.empty
    ]
    if lacking or strange:
        wrong = [f"has no parameter {name!r}" for name in lacking]
        wrong += [f"asks for {name!r}, which nobody gives" for name in strange]
        raise ConfigError(
            f"{found.label} {' and '.join(wrong)}. It is called with {', '.join(needed)}, and "
            f"with those of {', '.join(further)} that it names."
        )
    return found


def _place(error: Exception) -> str:
    """Return where a user finds the error: the innermost frame that is in no package."""
    frames = extract_tb(error.__traceback__)
    own = [f for f in frames[1:] if "site-packages" not in f.filename and f.filename[:1] != "<"]
    return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
