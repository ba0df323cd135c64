"""What an installer is told so that a distribution becomes what it is in this environment."""

from __future__ import annotations

import csv
import hashlib
import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from trinity.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["build_as_here", "words_as_here"]

_TOLD = ("/METADATA", "/entry_points.txt")  # of a dist-info; the rest says how it was installed


def words_as_here(requirement: str) -> list[str]:
    """Return the words of a command line that install a distribution as it is installed here.

    From a checkout that is edited in place it is that folder again; from a file, a folder or a
    repository that; else this version.

    Args:
        requirement: ``name`` or ``name[extra,extra]``.

    Raises:
        PluginError: it is not installed here.
    """
    name, bracket, rest = requirement.partition("[")
    extras = bracket + rest
    found = _found(name)
    origin = _origin(found)
    url = origin.get("url", "")
    if not url:
        return [f"{name}{extras}=={found.version}"]
    if origin.get("dir_info", {}).get("editable"):
        return ["-e", unquote(url).removeprefix("file://") + extras]
    version_control = origin.get("vcs_info", {})
    if version_control:
        url = f"{version_control.get('vcs')}+{url}@{version_control.get('commit_id')}"
    part = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    return [f"{name}{extras} @ {url}{part}"]


def build_as_here(requirement: str) -> str:
    """Return what tells builds of one place apart: the version, and a digest where it is a copy.

    Args:
        requirement: ``name`` or ``name[extra,extra]``.

    Raises:
        PluginError: it is not installed here.
    """
    name = requirement.partition("[")[0]
    found = _found(name)
    origin = _origin(found)
    is_copy = "url" in origin and not origin.get("dir_info", {}).get("editable")
    digest = f" {_digest(found)}" if is_copy and "vcs_info" not in origin else ""
    return f"{name} {found.version}{digest}"


def _found(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise PluginError(
            f"{name} is to be in the environment as it is here, and it is not installed here. "
            f"Run: python -m pip install {name}"
        ) from error


def _digest(found: Distribution) -> str:
    """Return a digest of the files that every installer makes equally of one build."""
    rows = csv.reader((found.read_text("RECORD") or "").splitlines())
    held = sorted(f"{row[0]} {row[1]}" for row in rows if len(row) > 1 and _is_of_build(row[0]))
    return hashlib.sha256("\n".join(held).encode()).hexdigest()[:16]


def _is_of_build(path: str) -> bool:
    folder = path.partition("/")[0]
    if folder == ".." or path.startswith("/") or path.endswith(".pyc"):
        return False
    return not folder.endswith(".dist-info") or path.endswith(_TOLD)


def _origin(found: Distribution) -> dict[str, Any]:  # Any: json, by PEP 610
    """Return where a distribution was installed from; empty: from an index."""
    try:
        origin = json.loads(found.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}
