"""``trinity plugins setup``: fetch and verify what a plugin needs beside Python packages."""

from __future__ import annotations

from typing import Annotated

import typer

from trinity.cli.plugins_show import record_named
from trinity.extend import get_manager
from trinity.extend.assets import assets_of, fetch, missing_part

__all__ = ["setup"]


def setup(
    name: Annotated[str, typer.Argument(help="The plugin, or its distribution.")],
) -> None:
    """Fetch and verify the plugin's data and programs."""
    manager = get_manager()
    record = record_named(name, manager)
    assets = assets_of(record, manager)
    if not assets:
        typer.echo(f"{record.label} needs nothing beside its Python packages.")
    num_missing = 0
    for asset in assets:
        missing = missing_part(asset, record=record)
        if missing and asset.fetch:
            typer.echo(f"{asset.name}: fetching {asset.what} ({asset.size})")
            fetch(asset, record=record)
            missing = missing_part(asset, record=record)
        by_hand = "" if asset.fetch else " It cannot be fetched for you."
        typer.echo(f"{asset.name}: " + (f"missing: {missing}.{by_hand}" if missing else "ok"))
        num_missing += bool(missing)
    if num_missing:
        raise typer.Exit(1)
