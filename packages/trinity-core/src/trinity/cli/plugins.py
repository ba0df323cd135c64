"""``trinity plugins``: list, show, check, create and set up plugins."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from trinity.cli.lazy import refuse_missing
from trinity.cli.output import echo_columns
from trinity.errors import unknown_name
from trinity.extend import KINDS, PluginRecord, get_manager
from trinity.extend.record import PluginState

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="List, inspect, check and create plugins.",
)


_KIT = "trinity_testing"


def _add_of_kit(name: str, help_without_kit: str, *, hidden_alias: str = "") -> None:
    """Add a command of the testing kit; without the kit, one that says how to get it."""

    def without_kit() -> None:
        refuse_missing(f"plugins {name}")

    try:
        module = importlib.import_module(f"{_KIT}.{name}_command")
        command, settings = getattr(module, name), dict(getattr(module, "SETTINGS", {}))
    except ModuleNotFoundError as error:
        if error.name != _KIT:
            raise
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        command, settings = without_kit, {"context_settings": anything, "help": help_without_kit}
    app.command(name, **settings)(command)
    if hidden_alias:
        app.command(hidden_alias, hidden=True, **settings)(command)


@app.command("list")
def list_plugins(
    kind: Annotated[str, typer.Option(help="Only plugins with components of this kind.")] = "",
    status: Annotated[str, typer.Option(help="Only plugins in this state.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, schema 1.")] = False,
    can_import: Annotated[
        bool,
        typer.Option("--import/--no-import", help="Import plugins, or read only their metadata."),
    ] = True,
) -> None:
    """List installed plugins, their status and components."""
    _refuse_unknown("--kind", kind, list(KINDS))
    _refuse_unknown("--status", status, [s for s in get_args(PluginState) if s != "unloaded"])
    manager = get_manager()
    records = manager.records if can_import else manager.unloaded_records()
    records = [record for record in records if not status or record.state == status]
    records = [r for r in records if not kind or any(c.kind == kind for c in r.components)]
    if as_json:
        typer.echo(json.dumps({"schema": 1, "plugins": list(map(_as_json, records))}, indent=2))
        return
    headers = ("PLUGIN", "DISTRIBUTION", "VERSION", "API", "STATUS", "PROVIDES")
    echo_columns(headers, [_as_row(record, kind) for record in records])


_add_of_kit("show", "Show a plugin's components with arguments, origin, docs and licence.")
_add_of_kit(
    "check",
    "Run the conformance checks of plugins; the exit code is 1 if a check fails.",
    hidden_alias="doctor",
)
_add_of_kit("new", "Create a plugin with one component: package, test, README and an example run.")
_add_of_kit("setup", "Fetch and verify what a plugin needs, or create its virtual environment.")


def _refuse_unknown(option: str, value: str, known: Sequence[str]) -> None:
    if value and value not in known:
        what = option.removeprefix("--")
        raise typer.BadParameter(unknown_name(what, value, known), param_hint=option)


def _as_row(record: PluginRecord, kind: str) -> tuple[str, ...]:
    names = ", ".join(c.name for c in record.components if c.kind == kind)
    provides = names if kind else record.provides()
    if record.message:
        provides = f"{provides}; {record.message}" if record.is_usable else record.message
    return (
        record.name,
        record.distribution or "(plugin folder)",
        record.version or "-",
        record.api or ("?" if record.state in {"broken", "incompatible"} else "-"),
        "-" if record.state == "unloaded" else record.state,
        provides,
    )


def _as_json(record: PluginRecord) -> dict[str, Any]:  # Any: json
    fields = asdict(record) | {"components": [_component_json(c) for c in record.components]}
    fields["shadowed"] = list(record.shadowed)
    return fields


def _component_json(component: Any) -> dict[str, Any]:
    spec = component.spec
    return {
        "kind": component.kind,
        "name": component.name,
        "target": spec.target,
        "summary": spec.summary,
        "needs": sorted(spec.needs),
        "provides": sorted(spec.provides),
        "aliases": list(spec.aliases),
        "import_aliases": list(spec.import_aliases),
        "deprecated": spec.deprecated,
        "default_for": spec.default_for,
    }
