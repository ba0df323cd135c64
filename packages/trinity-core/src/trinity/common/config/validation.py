"""pydantic's findings, said with the path, the line and the nearest name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config.config import Config
from trinity.common.config.paths import known_keys, model_at, paths_ending_in
from trinity.common.config.problem import Problem
from trinity.errors import did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from trinity.common.config.source import Source

__all__ = ["problems_of"]


def problems_of(error: ValidationError, *, data: Any, source: Source) -> list[Problem]:
    """Return a problem for each finding; several about one value (of a union) become one."""
    problems: dict[str, Problem] = {}
    for found in error.errors(include_url=False):
        problem = _problem(found, data=data, source=source)
        problems.setdefault(problem.path, problem)
    return list(problems.values())


def _problem(found: ErrorDetails, *, data: Any, source: Source) -> Problem:
    parts = _parts_in_data(found["loc"], data, missing=found["type"] == "missing")
    path = ".".join(parts)
    where = source.where(path) or source.where(path.rpartition(".")[0])
    if found["type"] == "extra_forbidden":
        return Problem(path=path, message=f"unknown key.{_nearest(parts)}", where=where)
    if found["type"] == "missing":
        return Problem(path=path, message="is missing.", remedy="It has no default.", where=where)
    if found["type"] == "model_type":
        found["msg"] = "should be a section, keys with values"
    what = found["msg"].removeprefix("Value error, ").replace("Input should", "should")
    return Problem(path=path, message=f"{what}; it is {_shown(found['input'])}.", where=where)


def _parts_in_data(loc: tuple[int | str, ...], data: Any, *, missing: bool) -> tuple[str, ...]:
    """Return the steps of ``loc`` that the data has; pydantic adds names of union members."""
    parts: list[str] = []
    for step in loc:
        is_step = (isinstance(data, dict) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and step < len(data)
        )
        if not is_step:
            return (*parts, str(step)) if missing else tuple(parts)
        parts.append(str(step))
        data = data[step]
    return tuple(parts)


def _nearest(parts: tuple[str, ...]) -> str:
    section = model_at(Config, parts[:-1])
    if section is None:
        return ""
    keys = known_keys(section)
    elsewhere = paths_ending_in(Config, parts[-1])
    if hint := did_you_mean(parts[-1], keys):
        return hint
    if elsewhere:
        return f" Did you mean {elsewhere[0]!r}?"
    return f" Known here: {', '.join(keys)}."


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
