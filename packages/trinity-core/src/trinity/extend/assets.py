"""What plugins need beside Python packages: whether it is there, and how it is fetched."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from trinity.errors import PluginError, TrinityError
from trinity.extend.component import AssetSpec, imported_target
from trinity.extend.failure import described_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trinity.extend.manager import PluginManager
    from trinity.extend.record import PluginRecord


def assets_of(record: PluginRecord, manager: PluginManager) -> list[AssetSpec]:
    """Return the data and programs that the plugin says it needs."""
    given = manager.call("trinity_assets")
    needs = [need for owner, own in given if owner.key == record.key for need in own]
    return [need for need in needs if isinstance(need, AssetSpec)]


def missing_part(
    asset: AssetSpec, *, record: PluginRecord, options: Mapping[str, str] | None = None
) -> str:
    """Return what of the asset is missing; empty: it is all there.

    Args:
        asset: what the plugin needs.
        record: the plugin.
        options: parameters of its functions and what the user gave for them.

    Raises:
        TrinityError: what the plugin's check raises to say what to do.
        PluginError: the plugin's check failed; the message says whose it is.
    """
    return str(_called(asset.check, f"the check of {asset.name!r}", record, options or {}) or "")


def fetch(
    asset: AssetSpec, *, record: PluginRecord, options: Mapping[str, str] | None = None
) -> None:
    """Fetch the asset, if the plugin can.

    Args:
        asset: what the plugin needs.
        record: the plugin.
        options: parameters of its functions and what the user gave for them.

    Raises:
        TrinityError: what the plugin's function raises to say what to do.
        PluginError: the plugin's function failed; the message says whose it is.
    """
    if asset.fetch is not None:
        _called(asset.fetch, f"fetching {asset.name!r}", record, options or {})


def _called(target: str, what: str, record: PluginRecord, options: Mapping[str, str]) -> object:
    try:
        function: object = imported_target(target)
        if not callable(function):
            return None
        named = parameters_of(function)
        return function(**{name: text for name, text in options.items() if name in named})
    except TrinityError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{what} of plugin {record.label} failed: {described_failure(error)}."
        ) from error


def parameters_of(function: Callable[..., object]) -> list[str]:
    """Return the parameters that a function takes by name."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in by_name]
