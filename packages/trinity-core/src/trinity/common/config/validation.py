"""pydantic's findings, said with the path, the line and the nearest name."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trinity.common.config.config import Config
from trinity.common.config.paths import known_keys, model_at, paths_ending_in, value_at
from trinity.common.config.problem import Problem
from trinity.errors import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from trinity.common.config.problem import Source

_MOST_ROUNDS = 5


def fitting(
    data: dict[str, Any], *, source: Source
) -> tuple[Config | None, list[Problem], set[str]]:
    """Return the configuration that the data make, what is wrong with them, and what was left out.

    What does not fit is left out until the rest does; None: nothing does.
    """
    data = copy.deepcopy(data)
    problems: list[Problem] = []
    left_out: set[str] = set()
    for number in range(_MOST_ROUNDS):
        try:
            return Config.model_validate(data), problems, left_out
        except ValidationError as error:
            found = problems_of(error, data=data, source=source)
        problems += found if number == 0 else [p for p in found if p.path not in left_out]
        taken_out = {_taken_out(data, problem.path) for problem in found}
        left_out |= taken_out
        if "" in taken_out:
            break
    return None, list({problem.path: problem for problem in problems}.values()), left_out


def _taken_out(data: dict[str, Any], path: str) -> str:
    """Return the path that was taken out of the data: the one given, or what holds it.

    An entry of a list is not taken out alone: those behind it would have other numbers.
    """
    while path:
        parent, _, name = path.rpartition(".")
        holder = value_at(data, parent)
        if isinstance(holder, dict) and name in holder:
            del holder[name]
            return path
        path = parent
    return ""


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
    is_plain = found["type"] != "value_error" or not isinstance(found["input"], list)
    value = f"; it is {_shown(found['input'])}" if is_plain else ""
    return Problem(path=path, message=f"{what}{value}.", where=where)


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
