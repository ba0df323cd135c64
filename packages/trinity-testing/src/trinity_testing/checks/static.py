"""What a plugin's metadata must say; nothing of the plugin is run."""

from __future__ import annotations

from importlib import metadata, util
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trinity_testing.check import Check, CheckContext, Finding, Skipped

if TYPE_CHECKING:
    from trinity.extend.manager import PluginRecord

CORE = "trinity-core"
UPPER_BOUNDS = {"<", "<=", "==", "~=", "==="}


def entry_point_resolves(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a plugin module that is not there, or that did not load."""
    if record.state == "disabled":
        raise Skipped("the plugin is disabled")
    if record.state in {"broken", "incompatible"}:
        return Finding(f"{record.state}: {record.message}", remedy=record.remedy)
    if record.module and util.find_spec(record.module) is None:
        return Finding(f"there is no module {record.module!r}")
    return None


def api_is_declared(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a plugin module without ``TRINITY_PLUGIN_API``."""
    if not record.distribution:
        raise Skipped("it comes from no distribution")
    if record.api is None and record.state in {"broken", "incompatible"}:
        raise Skipped("static.entry_point fails, so its declarations are unknown")
    if record.api is None:
        return Finding(f"{record.module} does not set TRINITY_PLUGIN_API")
    return None


def metadata_is_complete(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a distribution without summary or required Python."""
    about = _distribution(record).metadata
    missing = [key for key in ("Summary", "Requires-Python") if not _has(about, key)]
    if missing:
        return Finding(f"the metadata has no {' and no '.join(missing)}")
    return None


def license_is_named(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a distribution without a licence."""
    about = _distribution(record).metadata
    classifiers = about.get_all("Classifier") or []
    if _has(about, "License-Expression") or _has(about, "License"):
        return None
    if any(line.startswith("License ::") for line in classifiers):
        return None
    return Finding("the metadata names no licence")


def core_is_required_with_an_upper_bound(record: PluginRecord, _: CheckContext) -> Finding | None:
    """Find a requirement on the core that lets in every future version, or none at all."""
    distribution = _distribution(record)
    if canonicalize_name(distribution.metadata["Name"]) == CORE:
        raise Skipped("it is the core itself")
    required = [Requirement(line) for line in distribution.requires or []]
    ours = [one for one in required if canonicalize_name(one.name) == CORE]
    if not ours:
        return Finding(f"it does not require {CORE}")
    if not any(bound.operator in UPPER_BOUNDS for one in ours for bound in one.specifier):
        return Finding(f"its requirement '{ours[0]}' has no upper bound")
    return None


def _has(about: metadata.PackageMetadata, key: str) -> bool:
    return key in about and bool(about[key])


def _distribution(record: PluginRecord) -> metadata.Distribution:
    if not record.distribution:
        raise Skipped("it comes from no distribution")
    try:
        return metadata.distribution(record.distribution)
    except metadata.PackageNotFoundError:
        raise Skipped(f"there is no metadata of {record.distribution}") from None


checks = (
    Check(
        id="static.entry_point",
        function=entry_point_resolves,
        remedy="Correct the module in [project.entry-points.'trinity.plugins'].",
    ),
    Check(
        id="static.api_declared",
        function=api_is_declared,
        remedy="Write TRINITY_PLUGIN_API = 1 in the plugin module.",
    ),
    Check(
        id="static.metadata",
        function=metadata_is_complete,
        remedy="Set description and requires-python under [project].",
    ),
    Check(
        id="static.license",
        function=license_is_named,
        remedy="Set license = '<SPDX expression>' under [project].",
        severity="warning",
    ),
    Check(
        id="static.requires_core",
        function=core_is_required_with_an_upper_bound,
        remedy="Require 'trinity-core>=0.1,<0.2': a later core may not speak API 1.",
    ),
)
