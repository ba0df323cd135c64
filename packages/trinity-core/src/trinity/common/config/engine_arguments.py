"""What the constructor of a rollout engine gets: of the section's fields, those that it names."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.extend.component import split_target

if TYPE_CHECKING:
    from trinity.common.config.inference_model import InferenceModelConfig
    from trinity.common.config.model import ModelConfig
    from trinity.extend import Component

__all__ = ["engine_arguments", "engine_parameters", "parameters_of"]

_OF_MODEL = ("model_path", "max_model_len", "trust_remote_code")


def engine_arguments(
    parameters: frozenset[str] | None, *, rollout: InferenceModelConfig, model: ModelConfig
) -> dict[str, Any]:
    """Return the arguments of an engine, those of ``extra_engine_args`` among them.

    Args:
        parameters: of its constructor; None: any.
        rollout: its section; ``extra_engine_args`` win over the section's fields.
        model: the section of the model that it runs.
    """
    own = {name: getattr(rollout, name) for name in type(rollout).model_fields}
    own |= {name: own[name] or getattr(model, name) for name in _OF_MODEL}
    for name in type(model).model_fields:  # temperature, top_p, ...: where the section has none
        if name in own and own[name] is None:
            own[name] = getattr(model, name)
    if parameters is None:
        named = {name: own[name] for name in (*_OF_MODEL, "dtype", "seed", "cpu_kernels")}
        return named | rollout.extra_engine_args
    own |= rollout.extra_engine_args
    return {name: value for name, value in own.items() if name in parameters}


def engine_parameters(component: Component) -> frozenset[str] | None:
    """Return the parameters that an engine's constructor names; None: it takes any.

    They are read in the source where there is one, as importing an engine takes seconds.
    """
    if component.held is None:
        found = _parameters_in_source(component.spec.target)
        if found is not None:
            return None if "**" in found else found
    return parameters_of(component.load())


def parameters_of(function: Any) -> frozenset[str] | None:  # Any: a callable
    """Return the names that a function, or the class's constructor, takes; None: any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


@lru_cache(maxsize=32)
def _parameters_in_source(target: str) -> frozenset[str] | None:
    """Return the parameters of the class's own ``__init__``; None: it has none in its file."""
    try:
        module, name = split_target(target)
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    tree = ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    constructors = [
        node
        for node in (classes[0].body if classes else ())
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    if not constructors:
        return None
    given = constructors[0].args
    names = {one.arg for one in (*given.posonlyargs, *given.args[1:], *given.kwonlyargs)}
    return frozenset(names | ({"**"} if given.kwarg else set()))
