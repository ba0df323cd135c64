"""Call a reward function with what its signature names.

offered: response, truth, prompt, task, messages, ... and the options of reward_fn_args
__call__(self, response, truth)             gets these two
__call__(self, *, response, **kwargs)       gets response, truth, prompt and the options
__call__(self, response, weight_by_length)  is refused before a run: nothing gives the last
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, SupportsFloat

from trinity.common.rewards.failure import reward_failure
from trinity.errors import TrinityError, WorkflowError

if TYPE_CHECKING:
    from collections.abc import Collection

    from trinity.common.rewards.base import RewardFn

__all__ = ["NOT_JUDGED", "OFFERED", "CallShape", "call_shape", "scores_of"]

NOT_JUDGED = "not_judged"  # in info: why the answer has no reward; the run is left out
TO_ALL = ("response", "truth", "prompt")  # also where a call takes any keyword
OFFERED = (*TO_ALL, "task", "messages", "response_token", "info")  # where it names them


@dataclass(frozen=True, slots=True)
class CallShape:
    """What the calls of a reward function name."""

    by_position: tuple[str, ...]
    named: frozenset[str]
    required: tuple[str, ...]
    takes_any: bool

    def arguments(
        self, offered: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call (Any: each of its own type), by position and by name.

        Args:
            offered: what the workflow has.
            options: of ``reward_fn_args``; they win.
        """
        known = {**offered, **options}
        any_names = {*TO_ALL, *options} if self.takes_any else set()
        named = {name: known[name] for name in known if name in self.named or name in any_names}
        places = list(itertools.takewhile(known.__contains__, self.by_position))
        return [known[name] for name in places], named

    def lacking(self, options: Collection[str]) -> list[str]:
        """Return the parameters that a call needs and nothing gives."""
        return [name for name in self.required if name not in OFFERED and name not in options]


@lru_cache(maxsize=256)
def call_shape(cls: type) -> CallShape | None:
    """Return what calls of an instance of the class name; None: nobody can say."""
    try:
        parameters = list(inspect.signature(cls.__call__).parameters.values())[1:]
    except (TypeError, ValueError):
        return None
    kinds = inspect.Parameter
    of_names = [p for p in parameters if p.kind not in {kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD}]
    places = [p.name for p in of_names if p.kind is kinds.POSITIONAL_ONLY]
    return CallShape(
        by_position=tuple(places),
        named=frozenset(p.name for p in of_names if p.name not in places),
        required=tuple(p.name for p in of_names if p.default is kinds.empty),
        takes_any=any(p.kind is kinds.VAR_KEYWORD for p in parameters),
    )


def scores_of(
    reward_fn: RewardFn, *, offered: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, float]:
    """Return the finite scores that a reward function gives, by name; a number alone is "score".

    Args:
        reward_fn: the function.
        offered: what the workflow has of ``OFFERED`` (Any: each of its own type).
        options: those of ``reward_fn_args`` that the constructor did not take.

    Raises:
        WorkflowError: it raised, or a score is no finite number.
    """
    shape = call_shape(type(reward_fn))
    try:
        if shape is None:
            parts = reward_fn(**{name: offered[name] for name in TO_ALL}, **options)
        else:
            by_position, named = shape.arguments(offered, options)
            parts = reward_fn(*by_position, **named)
        named_parts = {"score": parts} if isinstance(parts, SupportsFloat) else parts
        if not isinstance(named_parts, Mapping):
            raise TypeError(f"it gave a {type(parts).__name__}, no number and no scores by name")
        return _finite({name: float(value) for name, value in named_parts.items()})
    except TrinityError:
        raise
    except Exception as error:  # the boundary to a plugin's reward function
        raise WorkflowError(reward_failure(reward_fn, error)) from error


def _finite(scores: dict[str, float]) -> dict[str, float]:
    bad = {name: value for name, value in scores.items() if not math.isfinite(value)}
    if bad:
        raise ValueError(f"it gave {bad}")
    return scores
