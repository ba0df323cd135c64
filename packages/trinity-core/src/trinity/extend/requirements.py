"""Compare versions: what a plugin asks of the core, and what a run asks of its plugins."""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.metadata import Distribution

    from trinity.extend.record import PluginRecord

CORE = "trinity-core"
_ON_CORE = re.compile(r"trinity[-_.]+core(?![\w.-]*\w)", re.IGNORECASE)
_CLAUSE = re.compile(r"\s*(<=|>=|<|>)\s*(\d+(?:\.\d+)*)\s*")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def unmet_core_requirement(distribution: Distribution) -> str:
    """Return what the distribution asks of the core and does not get; empty: all is well."""
    for line in distribution.requires or ():
        if not _ON_CORE.match(line):
            continue
        core_version = _core_version()
        if _is_plainly_met(line, core_version):
            continue
        from packaging.requirements import InvalidRequirement, Requirement

        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            return f"needs {line!r}, which is no requirement"
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(core_version, prereleases=True):
            return f"needs {CORE}{requirement.specifier}, this is {CORE} {core_version}"
    return ""


@cache
def _core_version() -> str:
    from importlib.metadata import version

    return version(CORE)


def _is_plainly_met(line: str, core_version: str) -> bool:
    """Tell whether the usual ``name>=1.0,<2`` holds; saves a third of ``plugins list``.

    False: it does not, or ``packaging`` must say.
    """
    clauses = [_CLAUSE.fullmatch(clause) for clause in _ON_CORE.sub("", line).split(",")]
    if not re.fullmatch(r"\d+(\.\d+)*", core_version) or not all(clauses):
        return False
    have = _numbers(core_version)
    return all(_COMPARE[c[1]](have, _numbers(c[2])) for c in clauses if c is not None)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the parts of a version without the zeros at its end: 1.0 is 1."""
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", version).split("."))


def missing_requirements(
    requirements: Sequence[str], *, records: Iterable[PluginRecord]
) -> list[str]:
    """Return one line for each of ``plugins.require`` that does not hold, with the pip line."""
    from packaging.requirements import InvalidRequirement, Requirement

    usable = {canonical(r.distribution): r for r in records if r.distribution and r.is_usable}
    missing = []
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            missing.append(
                f"plugins.require: {text!r} is no requirement. Write it as pip does: name>=0.1"
            )
            continue
        record = usable.get(canonical(requirement.name))
        if record is None:
            have = "it is not installed or not in use"
        elif requirement.specifier.contains(record.version or "0", prereleases=True):
            continue
        else:
            have = f"{record.version} is installed"
        missing.append(f'plugins.require: {text}: {have}. Run: python -m pip install "{text}"')
    return missing


def canonical(name: str) -> str:
    """Return a distribution's name as the package index compares it.

    >>> canonical("Trinity_Envs.Maze")
    'trinity-envs-maze'
    """
    return re.sub(r"[-_.]+", "-", name).lower()
