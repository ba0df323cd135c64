"""What a plugin needs beside Python packages, and whether it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import PluginError, TrinityError
from trinity.extend.assets import assets_of, missing_part
from trinity.extend.component import EnvironmentSpec
from trinity.extend.environments import environment_folder, missing_environment, setup_line

if TYPE_CHECKING:
    from trinity.extend.component import AssetSpec
    from trinity.extend.manager import PluginManager, PluginRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """Something that a plugin needs, and whether it is there."""

    name: str  # of the asset, or "environment"
    missing: str = ""  # what of it, in words; "": it is there
    remedy: str = ""  # the command that gets it; "": there is none, or ``missing`` says it
    is_spoilt: bool = False  # it was fetched and is not as it must be, or its check failed
    needed_by: tuple[str, ...] = ()  # "kind/name" of components; empty: all

    @property
    def sentence(self) -> str:
        """Return what is missing and what to do, in one line."""
        what = "its environment" if self.name == "environment" else self.name
        return f"{what} is missing: {self.missing.rstrip('.')}. {self.remedy}".rstrip(". ")


def needs_of(record: PluginRecord, manager: PluginManager) -> list[Need]:
    """Return what the plugin needs, its environment first."""
    environment = environment_of(record, manager)
    found = []
    if environment is not None and not environment.as_here:  # else it is one way among others
        found = [_environment(environment)]
    return [*found, *(_asset(asset, record) for asset in assets_of(record, manager))]


def environment_of(record: PluginRecord, manager: PluginManager) -> EnvironmentSpec | None:
    """Return the virtual environment that the plugin says it needs; None: it needs none.

    Raises:
        PluginError: it names several, or one by another name than its own.
    """
    given = manager.call("trinity_assets")
    needs = [need for owner, own in given if owner.key == record.key for need in own]
    found = [need for need in needs if isinstance(need, EnvironmentSpec)]
    if not found:
        return None
    if len(found) > 1 or not record.is_called(found[0].name):
        names = ", ".join(repr(spec.name) for spec in found)
        raise PluginError(
            f"plugin {record.label} declares the environments {names}. Declare one, named "
            f"{record.name!r} as the plugin is."
        )
    return found[0]


def _environment(spec: EnvironmentSpec) -> Need:
    missing = missing_environment(spec)
    return Need(
        name="environment",
        missing=missing,
        remedy=setup_line(spec),
        is_spoilt=bool(missing) and environment_folder(spec).exists(),
    )


def _asset(asset: AssetSpec, record: PluginRecord) -> Need:
    is_spoilt = False
    try:
        missing = missing_part(asset, record=record)
    except PluginError as error:
        missing, is_spoilt = str(error), True
    except TrinityError as error:
        missing = str(error)
    return Need(
        name=asset.name,
        missing=missing,
        remedy=f"Run: trinity plugins setup {record.name}" if asset.fetch else "",
        is_spoilt=is_spoilt,
        needed_by=asset.needed_by,
    )
