"""Settings from the command line: ``--set a.b=value``."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.config.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHERE = "command line"
_INDEX = re.compile(r"\[(\d+)\]")  # a[0].b means a.0.b


@dataclass(frozen=True, kw_only=True)
class Override:
    """One setting: a dotted path (lists by index) and a value, typed as YAML types it."""

    path: str
    value: Any


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """Return the settings, and a problem for each text that is none."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    for text in texts:
        path, equals, value = text.partition("=")
        path = _INDEX.sub(r".\1", path.strip())
        if equals and all(part.strip() for part in path.split(".")):
            overrides.append(Override(path=path, value=_yaml_value(value)))
        else:
            problems.append(
                Problem(
                    path=text,
                    message="is no setting.",
                    remedy="Write it as buffer.batch_size=8.",
                    where=_WHERE,
                )
            )
    return overrides, problems


def apply_overrides(raw: dict[str, Any], overrides: Sequence[Override]) -> list[Problem]:
    """Set the values in place; return a problem for each path that leads nowhere."""
    return [problem for one in overrides for problem in _apply(raw, one)]


def _yaml_value(text: str) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped]

    try:
        read = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False)
    except (YAMLError, OmegaConfBaseException):
        return text
    return read["value"] if isinstance(read, dict) else text


def _apply(raw: dict[str, Any], override: Override) -> list[Problem]:
    *parents, last = override.path.split(".")
    _give_stage_its_section(raw, parents)
    place: Any = raw
    for part, below in zip(parents, [*parents, last][1:], strict=True):
        if isinstance(place, dict) and place.get(part) is None and below.isdigit():
            return [_leads_nowhere(override.path, below, [])]
        if isinstance(place, dict):
            if place.get(part) is None:
                place[part] = {}
            place = place[part]
        elif isinstance(place, list) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        else:
            return [_leads_nowhere(override.path, part, place)]
    if isinstance(place, dict):
        place[last] = override.value
    elif isinstance(place, list) and last.isdigit() and int(last) < len(place):
        place[int(last)] = override.value
    else:
        return [_leads_nowhere(override.path, last, place)]
    return []


def _give_stage_its_section(raw: dict[str, Any], parents: Sequence[str]) -> None:
    """Let a stage that takes a whole section from above have a copy, so that one value changes."""
    stages = raw.get("stages")
    match parents:
        case ["stages", index, section, *_] if isinstance(stages, list) and index.isdigit():
            stage = stages[int(index)] if int(index) < len(stages) else None
            if isinstance(stage, dict) and isinstance(raw.get(section), dict):
                stage.setdefault(section, copy.deepcopy(raw[section]))


def _leads_nowhere(path: str, part: str, place: Any) -> Problem:
    if isinstance(place, list):
        known = (
            f"the list has {len(place)} entries, counted from 0" if place else "there is no list"
        )
    else:
        known = f"what stands before it is {place!r}"
    return Problem(
        path=path,
        message=f"leads nowhere at {part!r}: {known}.",
        remedy="See `trinity config show` for the paths.",
        where=_WHERE,
    )
