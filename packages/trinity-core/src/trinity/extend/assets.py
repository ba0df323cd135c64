"""What plugins need beside Python packages: whether it is there, and how it is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import PluginError
from trinity.extend.component import AssetSpec, imported_target
from trinity.extend.failure import described_failure

if TYPE_CHECKING:
    from trinity.extend.manager import PluginManager
    from trinity.extend.record import PluginRecord

__all__ = ["assets_of", "fetch", "missing_part"]


def assets_of(record: PluginRecord, manager: PluginManager) -> list[AssetSpec]:
    """Return what the plugin says it needs."""
    given = manager.call("trinity_assets")
    return [asset for owner, assets in given if owner.key == record.key for asset in assets]


def missing_part(asset: AssetSpec, *, record: PluginRecord) -> str:
    """Return what of the asset is missing; empty: it is all there.

    Raises:
        PluginError: the plugin's check failed; the message says whose it is.
    """
    return str(_called(asset.check, f"the check of {asset.name!r}", record) or "")


def fetch(asset: AssetSpec, *, record: PluginRecord) -> None:
    """Fetch the asset, if the plugin can.

    Raises:
        PluginError: the plugin's function failed; the message says whose it is.
    """
    if asset.fetch is not None:
        _called(asset.fetch, f"fetching {asset.name!r}", record)


def _called(target: str, what: str, record: PluginRecord) -> object:
    try:
        function: object = imported_target(target)
        return function() if callable(function) else None
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{what} of plugin {record.label} failed: {described_failure(error)}."
        ) from error
