"""``${oc.env:NAME,default}`` and ``${other.key}``, as OmegaConf reads them."""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from trinity.common.config.problem import Problem
from trinity.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config.problem import Source

_RESOLVER = "trinity.env"
_environment: ContextVar[Mapping[str, str]] = ContextVar("trinity_config_environment")


class _UnsetVariableError(ValueError):
    """The variable that a value asks for is not set, and the value names no default."""


def resolved_values(
    raw: dict[str, Any], *, env: Mapping[str, str], source: Source
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the settings with every interpolation replaced, and those that cannot be."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not OmegaConf.has_resolver(_RESOLVER):
        with warnings.catch_warnings(category=UserWarning, action="ignore"):  # renamed in 2.4
            OmegaConf.register_new_resolver(_RESOLVER, _read_variable)
    token = _environment.set(env)
    problems: list[Problem] = []
    try:
        values = _resolve(OmegaConf.create(_redirected(raw)), "", source, problems)
    except OmegaConfBaseException as error:
        values = {}
        problems.append(_unresolved(error, str(error.full_key or ""), source))
    finally:
        _environment.reset(token)
    return values, problems


def _read_variable(name: str, *default: Any) -> Any:
    env = _environment.get()
    if name in env:
        return env[name]
    if not default:
        raise _UnsetVariableError(
            f"the environment variable {name} is not set, and no default is given."
            f"{did_you_mean(name, env)}"
        )
    return default[0] if default[0] is None else str(default[0])


def _redirected(value: Any) -> Any:
    """Return the settings with ``oc.env`` replaced by our reader, which knows the mapping."""
    if isinstance(value, dict):
        return {key: _redirected(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redirected(item) for item in value]
    return value.replace("${oc.env:", f"${{{_RESOLVER}:") if isinstance(value, str) else value


def _resolve(node: Any, path: str, source: Source, problems: list[Problem]) -> Any:
    from omegaconf import DictConfig, ListConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not isinstance(node, DictConfig | ListConfig):
        return node
    keys: list[Any] = list(node.keys() if isinstance(node, DictConfig) else range(len(node)))
    values: dict[Any, Any] = {}
    for key in keys:
        below = f"{path}.{key}" if path else str(key)
        try:
            value = None if OmegaConf.is_missing(node, key) else node[key]
        except (OmegaConfBaseException, RecursionError) as error:
            problems.append(_unresolved(error, below, source))
            continue
        values[key] = _resolve(value, below, source, problems)
    return values if isinstance(node, DictConfig) else list(values.values())


def _unresolved(error: BaseException, path: str, source: Source) -> Problem:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, _UnsetVariableError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        remedy = "Set it, or write ${oc.env:NAME,default}."
        return Problem(path=path, message=str(cause), remedy=remedy, where=source.where(path))
    what = str(error).splitlines()[0].rstrip(".")
    return Problem(
        path=path,
        message=f"cannot be worked out: {what}.",
        remedy="A reference is the whole path of another key: ${model.max_model_len}.",
        where=source.where(path),
    )
