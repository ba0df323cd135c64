"""Find plugins from metadata alone: nothing of theirs is imported here."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from trinity.extend.record import PluginRecord
from trinity.extend.requirements import CORE, canonical, unmet_core_requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import Distribution, EntryPoint

GROUP = "trinity.plugins"


@dataclass(frozen=True, kw_only=True)
class FoundPlugin:
    """A plugin and the distribution that declares it."""

    record: PluginRecord
    distribution: Distribution | None  # None: from a plugin folder


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Which of the plugins that were found may be imported: ``plugins.*`` and ``-P``."""

    autoload: bool = True
    allow: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()

    def decide(self, found: FoundPlugin) -> PluginRecord:
        """Return the record, disabled or incompatible where its metadata says so."""
        record = found.record
        names = {canonical(record.name), canonical(record.distribution or record.name)}
        if names & set(map(canonical, self.disabled)):
            message = "switched off by plugins.disabled or -P"
            return replace(record, state="disabled", message=message, remedy="leave the switch out")
        if record.distribution is None or canonical(record.distribution) == CORE:
            return record
        if not self.autoload and not names & set(map(canonical, self.allow)):
            remedy = f"add {record.name} to plugins.allow"
            message = "plugins.autoload is off"
            return replace(record, state="disabled", message=message, remedy=remedy)
        unmet = unmet_core_requirement(found.distribution) if found.distribution else ""
        if not unmet:
            return record
        remedy = f"python -m pip install --upgrade {CORE} {record.distribution}"
        return replace(record, state="incompatible", message=unmet, remedy=remedy)


def found_plugins(entry_points: Iterable[EntryPoint] | None = None) -> list[FoundPlugin]:
    """Return the plugins of the installed distributions, sorted by distribution and name."""
    if entry_points is None:
        from importlib.metadata import entry_points as installed_entry_points

        entry_points = installed_entry_points(group=GROUP)
    found = [_found(entry_point) for entry_point in entry_points]
    return sorted(found, key=lambda plugin: (plugin.record.distribution or "", plugin.record.name))


def _found(entry_point: EntryPoint) -> FoundPlugin:
    distribution = entry_point.dist
    source, path, commit = _source_of(distribution)
    about = _metadata(distribution)
    record = PluginRecord(
        name=entry_point.name,
        distribution=about.get("Name") or canonical(entry_point.module),
        version=about.get("Version") or "0",
        module=entry_point.module,
        source=source,
        path=path,
        commit=commit,
    )
    if entry_point.attr:
        message = f"its entry point names {entry_point.attr!r}, and hooks are called on a module"
        remedy = f"write {record.name} = '{record.module}' (or a module in it) in its metadata"
        record = replace(record, state="broken", message=message, remedy=remedy)
    return FoundPlugin(record=record, distribution=distribution)


def _metadata(distribution: Distribution | None) -> Mapping[str, str]:
    """Return what the distribution says of itself; a half-removed one says nothing."""
    about = distribution.metadata if distribution else None
    return {key: about[key] for key in ("Name", "Version") if key in about} if about else {}


def direct_url(distribution: Distribution) -> dict[str, Any]:  # Any: json
    """Return where a distribution was installed from, by PEP 610; empty: from an index."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) and "url" in origin else {}


def _source_of(distribution: Distribution | None) -> tuple[str, str | None, str | None]:
    """Return where an installation came from, its folder and its commit."""
    origin = direct_url(distribution) if distribution else {}
    if not origin:
        return "wheel", None, None
    if origin.get("dir_info", {}).get("editable"):
        folder = str(origin["url"]).removeprefix("file://")
        return "editable", folder, _commit_of(Path(unquote(folder)))
    if "vcs_info" in origin:
        return "git", str(origin["url"]), str(origin["vcs_info"].get("commit_id", ""))
    return "wheel", str(origin["url"]).removeprefix("file://"), None


def _commit_of(folder: Path) -> str | None:
    """Return the commit of the clone that a folder lies in, read without git; None: of none.

    Read for each command, so nothing is started: HEAD names the commit, or a branch, whose file or
    line in ``packed-refs`` names it. In a linked worktree ``.git`` is a file.
    """
    for above in (folder, *folder.parents):
        place = above / ".git"
        try:
            if place.is_file():
                place = above / place.read_text("utf-8").removeprefix("gitdir:").strip()
            head = (place / "HEAD").read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if not head.startswith("ref: "):
            return head
        return _commit_of_branch(place, head.removeprefix("ref: "))
    return None


def _commit_of_branch(place: Path, branch: str) -> str | None:
    try:
        shared = place / "commondir"
        common = place / shared.read_text("utf-8").strip() if shared.is_file() else place
        if (common / branch).is_file():
            return (common / branch).read_text("utf-8").strip()
        packed = (common / "packed-refs").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {branch}")), None)
