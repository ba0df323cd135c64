"""Do the arguments of a component fit its signature?"""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, PydanticSchemaGenerationError, TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from trinity.common.config.parts import named_failure
from trinity.common.rewards.calling import OFFERED, call_shape
from trinity.common.rewards.failure import place_of_call
from trinity.errors import did_you_mean
from trinity.extend.component import imported_target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from trinity.extend import Component

_OF_EACH_ANSWER = frozenset({"self", *OFFERED})  # given by the workflow


def argument_problems(
    component: Component,
    target: type,
    args: Mapping[str, Any],
    given_by_room: Collection[str] = (),
) -> Iterator[tuple[str, str]]:
    """Yield ``(argument, what is wrong)`` for each argument that the component does not take.

    Args:
        component: whose arguments they are.
        target: its class.
        args: what the configuration gives.
        given_by_room: parameters that the room passes itself.
    """
    whose = f"{component.kind} {component.name}"
    if component.spec.args_model:
        with named_failure(f"args_model {component.spec.args_model} of {whose}"):
            model: Any = imported_target(component.spec.args_model)
        yield from _by_model(model, args)
        return
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return
    known = [name for name, p in parameters.items() if _is_option(p, given_by_room)]
    of_call = _options_of_call(target) if component.kind == "reward_fn" else []
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in args.items():
        if name in known:
            yield from _by_annotation(target, name, value)
        elif not takes_any and name not in of_call:
            taken = [*known, *of_call]
            listed = f"It takes: {', '.join(taken)}." if taken else "It takes none."
            yield name, f"{whose} has no argument {name!r}.{did_you_mean(name, taken)} {listed}"
    for name in known:
        if parameters[name].default is inspect.Parameter.empty and name not in args:
            yield name, f"{whose} needs the argument {name!r}."
    yield from _lacking_in_calls(component, target, args)


def _is_option(parameter: inspect.Parameter, given_by_room: Collection[str]) -> bool:
    variadic = parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return not variadic and parameter.name not in given_by_room


def _lacking_in_calls(
    component: Component, target: type, args: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield what the calls of a reward function need and nothing gives."""
    shape = call_shape(target) if component.kind == "reward_fn" else None
    for name in shape.lacking(args) if shape else ():
        yield (
            name,
            f"{component.kind} {component.name} wants {name!r} in each call "
            f"({place_of_call(target)}), which nothing gives. Give it in reward_fn_args, or "
            f"let the signature have a default for it; a call may "
            f"name {', '.join(OFFERED)}.",
        )


def _options_of_call(target: type) -> list[str]:
    """Return what the calls of a reward function name beside the answer."""
    try:
        parameters = inspect.signature(target.__call__).parameters
    except (TypeError, ValueError):
        return []
    return [name for name, p in parameters.items() if _is_option(p, _OF_EACH_ANSWER)]


def _by_annotation(target: type, name: str, value: Any) -> Iterator[tuple[str, str]]:
    try:
        hint = typing.get_type_hints(target.__init__).get(name)  # type: ignore[misc]
    except (NameError, TypeError):  # annotated with a name that exists for type checkers only
        return
    if hint is None:
        return
    try:
        adapter = TypeAdapter(hint, config=_config_for(hint))
    except PydanticSchemaGenerationError:
        return
    try:
        adapter.validate_python(value)
    except PydanticValidationError as error:
        for what in dict.fromkeys(str(found["msg"]) for found in error.errors()):
            yield name, f"{what.replace('Input should', 'should')}; it is {value!r}."
            return


def _config_for(hint: Any) -> ConfigDict | None:
    is_own = isinstance(hint, type) and issubclass(hint, BaseModel)
    return None if is_own else ConfigDict(arbitrary_types_allowed=True)


def _by_model(model: Any, args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        model.model_validate(dict(args))
    except PydanticValidationError as error:
        for found in error.errors():
            path = ".".join(str(part) for part in found["loc"])
            yield path, f"{found['msg'].replace('Input should', 'should')}."
