"""Can the policy loss and the advantage function be called as a run calls them?"""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from trinity.common.batch import ALIASES
from trinity.common.config.check_names import is_own, named_parts, problem_at, tasksets_in_use
from trinity.common.rewards.failure import place_of_call
from trinity.errors import did_you_mean
from trinity.extend.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.common.config.config import Config
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem, Severity
    from trinity.extend import Component

    _Found = Iterator[tuple[str, Severity]]

_FIELDS = (
    *("logprob", "action_mask", "advantages", "returns", "old_logprob", "sampled_logprob"),
    *("ref_logprob", "policy_logprob", "teacher_logprobs", "entropy", "values", "rewards"),
    *("token_level_rewards", "responses", "expert_mask", "step", "entropys", "necs"),
    *("rollout_weight", "kept_mask"),
)
_GIVERS = {  # kinds whose components may give a batch fields of their own
    *("workflow", "experience_operator", "storage", "sample_strategy"),
    *("advantage_fn", "kl_fn", "trainer"),
}
_UNLESS = " This stops the first train step, unless a component of the run adds the field."


def call_problems(config: Config, parts: NamedParts) -> Iterator[Problem]:
    """Yield why the train steps of a run could not call its functions."""
    found = [(part, parts.find(part.kind, part.name)) for part in named_parts(config)]
    others = [(part, one) for part, one in found if one is not None and not is_own(one)]
    givers = [one for _, one in others if one.kind in _GIVERS]
    for part, component in others:
        is_checked = part.kind in {"policy_loss_fn", "advantage_fn"} and config.has_trainer
        cls: Any = parts.load(part.kind, part.name) if is_checked else None
        if inspect.isclass(cls):
            at = f"{part.name} ({component.origin}) cannot be called at {place_of_call(cls)}"
            check = _of_advantage if part.kind == "advantage_fn" else _of_loss
            for what, severity in check(config, cls, givers):
                problem = problem_at(config, part.path, f"{at}: {what}")
                yield replace(problem, severity=severity)


def _of_advantage(config: Config, cls: type, givers: Sequence[Component]) -> _Found:
    """Yield why ``function(batch)`` fails: of ``__call__`` as written, without our wrapper."""
    if config.mode != "both" or any(one.kind == "trainer" for one in givers):
        return  # rows of a file may have advantages, and another trainer its own calls
    definer = next((one for one in cls.__mro__ if "__call__" in vars(one)), object)
    method = vars(definer).get("__call__")
    if KINDS["advantage_fn"].base() in definer.__mro__:
        method = getattr(method, "__wrapped__", method)
    try:
        if isinstance(method, FunctionType):
            inspect.signature(method, follow_wrapped=False).bind(None, None)
    except TypeError as error:
        how = "It is passed the batch, by position, and nothing else. Give other parameters a"
        yield f"{error}. {how} default, or take them in __init__ (advantage_fn_args).", "error"


def _of_loss(config: Config, cls: Any, givers: Sequence[Component]) -> _Found:
    """Yield each parameter that has no default and is no field; a notice, if it may be one."""
    by_row = any(one.format.workflow_key for _, one in tasksets_in_use(config))
    may_be_given = givers or by_row or config.mode != "both"  # a file's rows have fields, too
    parameters = list(inspect.signature(cls.__call__).parameters.values())[1:]
    needed = [p.name for p in parameters if p.default is p.empty and not str(p).startswith("*")]
    for name in needed:
        own = name.removeprefix("whole_")
        if ALIASES.get(own, own) not in _FIELDS and not any(_says(one, own) for one in givers):
            yield (
                f"it needs {name!r}, which Trinity does not pass.{did_you_mean(name, _FIELDS)} "
                f"Fields of the batch are passed, by name: {', '.join(_FIELDS)}. Name one of them, "
                "give the parameter a default, or take it in __init__ (policy_loss_fn_args)."
                f"{_UNLESS if may_be_given else ''}",
                "notice" if may_be_given else "error",
            )


def _says(component: Component, field: str) -> bool:
    """Return whether a component says that it provides a field, or its file names it."""
    try:
        text = inspect.getsource(inspect.getmodule(component.load()) or component.load())
    except (OSError, TypeError):
        return True
    return field in component.spec.provides or repr(field) in text.replace('"', "'")
