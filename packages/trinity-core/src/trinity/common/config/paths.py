"""Dotted paths into a configuration: ``buffer.explorer_input.tasksets.0.path``."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic import AliasChoices, BaseModel

from trinity.common.config.base import StrictModel

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value below a section by its dotted path; empty lists and dicts are values."""
    if isinstance(value, BaseModel):
        items = [(name, getattr(value, name)) for name in type(value).model_fields]
    elif isinstance(value, dict) and value:
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        yield path, value
        return
    for name, item in items:
        yield from leaves(item, f"{path}.{name}" if path else name)


def fields(value: Any, path: str = "") -> Iterator[tuple[str, StrictModel, str, FieldInfo]]:
    """Yield ``(path, section, name, field)`` of every field of every section that exists."""
    if isinstance(value, StrictModel):
        for name, info in type(value).model_fields.items():
            below = f"{path}.{name}" if path else name
            yield below, value, name, info
            yield from fields(getattr(value, name), below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from fields(item, f"{path}.{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from fields(item, f"{path}.{key}")


def value_at(value: Any, path: str) -> Any:
    """Return what stands at a dotted path, None where nothing does; the value itself at ""."""
    for part in path.split(".") if path else ():
        if isinstance(value, BaseModel):
            value = getattr(value, part, None)
        elif isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def models_in(annotation: Any) -> list[type[StrictModel]]:
    """Return the sections that a field's type can hold, below lists, dicts and options too."""
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        return [annotation]
    if isinstance(annotation, types.GenericAlias | types.UnionType) or typing.get_args(annotation):
        return [model for arg in typing.get_args(annotation) for model in models_in(arg)]
    return []


def model_at(root: type[StrictModel], parts: tuple[str, ...]) -> type[StrictModel] | None:
    """Return the section that stands at a path of the schema; list indices and keys are skipped."""
    model: type[StrictModel] | None = root
    for part in parts:
        if model is None:
            return None
        info = model.model_fields.get(part)
        if info is None:
            if part.isdigit():
                continue
            return None
        below = models_in(info.annotation)
        model = below[0] if below else None
    return model


def is_number_at(root: type[StrictModel], path: str) -> bool:
    """Return whether a value at a path may be a number, or hold one: unknown keys may."""
    parts = tuple(path.split("."))
    model = model_at(root, parts[:-1])
    info = model.model_fields.get(parts[-1]) if model is not None else None
    if info is None:
        return model is not None
    return (
        _holds(info.annotation, int)
        or _holds(info.annotation, float)
        or bool(models_in(info.annotation))
    )


def _holds(annotation: Any, wanted: type) -> bool:
    return annotation is wanted or any(_holds(a, wanted) for a in typing.get_args(annotation))


def known_keys(model: type[StrictModel]) -> list[str]:
    """Return the keys that a section takes, accepted older names too."""
    keys = set(model.model_fields)
    for info in model.model_fields.values():
        if isinstance(info.validation_alias, AliasChoices):
            keys |= {str(choice) for choice in info.validation_alias.choices}
    return sorted(keys)


def paths_ending_in(root: type[StrictModel], name: str) -> list[str]:
    """Return the schema's paths that end in a name, the shortest first; lists count as one."""
    found = sorted(_schema_paths(root, ""), key=lambda path: (path.count("."), path))
    return [path for path in found if path.rpartition(".")[2] == name]


def _schema_paths(model: type[StrictModel], path: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        below = f"{path}.{name}" if path else name
        yield below
        if name != "stages":
            for inner in models_in(info.annotation):
                yield from _schema_paths(inner, below)
