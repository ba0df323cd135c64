"""Another distribution that installs the package ``trinity``: each overwrites files of the other.

Found from file names and records beside the package, in about a millisecond, by code that no other
distribution has a file of: so it is there whichever of the two was installed last.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from trinity.errors import PluginError
from trinity.extend.requirements import CORE, canonical

PACKAGE = Path(__file__).parents[1]
OURS = "trinity_core"
_FIRST_FILE = "trinity/__init__.py,"


def refuse_other_owner() -> None:
    """Raise where another distribution installs the package ``trinity`` too.

    Raises:
        PluginError: an ImportError; the message is that of ``overwritten``.
    """
    message = overwritten()
    if message:
        raise PluginError(message)


def overwritten() -> str | None:
    """Return what is wrong with the files of the package, and what to do; None: nothing."""
    owner = other_owner(str(PACKAGE.parent))
    if owner is not None:
        return (
            f"{owner} also installs the import package 'trinity', so files of both lie in "
            f"{PACKAGE}. {remedy(owner.partition(' ')[0])}"
        )
    if not (PACKAGE / "__init__.py").is_file():
        return f"files of trinity-core are missing in {PACKAGE}. {remedy(None)}"
    return None


def remedy(other: str | None) -> str:
    """Return the commands that bring the package's own files back.

    Args:
        other: the distribution to remove; None: it is gone already.
    """
    again = "python -m pip install --force-reinstall --no-deps trinity-core"
    return (
        f"Run: {again}" if other is None else f"Run: python -m pip uninstall {other}, then {again}"
    )


@cache
def other_owner(folder: str) -> str | None:
    """Return the name and version of another owner of ``trinity`` in a folder of installations.

    Only distributions whose name begins with "trinity" are looked at; the check before a run looks
    at all.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return None
    for name in names:
        stem, dot, ending = name.rpartition(".")
        if not dot or ending != "dist-info" or not name.lower().startswith("trinity"):
            continue
        project, _, version = stem.partition("-")
        if project.lower() != OURS and _owns(os.path.join(folder, name)):
            return f"{project.replace('_', '-')} {version}"
    return None


def _owns(metadata: str) -> bool:
    try:
        return _is_listed(Path(metadata, "RECORD").read_text("utf-8"))
    except OSError:
        return False


def _is_listed(record: str) -> bool:
    return record.startswith(_FIRST_FILE) or f"\n{_FIRST_FILE}" in record


def refuse_any_other_owner() -> None:
    """Raise as ``refuse_other_owner`` does; looks at all distributions, wherever they lie.

    Raises:
        PluginError: another distribution owns the import package; the message names it.
    """
    from importlib.metadata import distributions

    found = set()
    for one in distributions():
        is_owner = "trinity" in (one.read_text("top_level.txt") or "").split()
        if is_owner or _is_listed(one.read_text("RECORD") or ""):
            found.add((one.name, one.version))
    owners = [f"{name} {version}" for name, version in sorted(found) if canonical(name) != CORE]
    if owners:
        raise PluginError(
            f"{' and '.join(owners)} also installs the import package 'trinity', so files of both "
            f"lie in one folder. {remedy(owners[0].split()[0])}"
        )
