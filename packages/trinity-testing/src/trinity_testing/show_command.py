"""``trinity plugins show``: one plugin or one component, with arguments, origin and licence."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.errors import PluginError, UnknownComponentError, unknown_name
from trinity.extend import KINDS, get_manager

if TYPE_CHECKING:
    from trinity.extend import Component, PluginManager, PluginRecord


def show(
    name: Annotated[
        str, typer.Argument(help="A plugin, its distribution, or KIND/NAME of a component.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, schema 1.")] = False,
) -> None:
    """Show a plugin's components with arguments, defaults, origin, docs and licence."""
    manager = get_manager()
    kind, _, component_name = name.partition("/")
    if component_name and kind not in KINDS:
        raise UnknownComponentError(unknown_name("kind of component", kind, KINDS))
    if component_name and kind in KINDS:
        components = [manager.find(kind, component_name)]
        plugin = {}
    else:
        record = record_named(name, manager)
        components, plugin = list(record.components), _about(record)
    shown = {"schema": 1, **plugin, "components": [_about_component(c) for c in components]}
    if as_json:
        typer.echo(json.dumps(shown, indent=2, default=str))
        return
    for key, value in plugin.items():
        if value:
            typer.echo(f"{key + ':':<14}{value}")
    for component in shown["components"]:
        _echo_component(component)


def record_named(name: str, manager: PluginManager) -> PluginRecord:
    """Return the plugin with this name, or of the distribution with this name.

    Raises:
        UnknownComponentError: there is none, or a name is shared by several.
    """
    records = manager.records
    found = [r for r in records if r.name == name] or [r for r in records if r.is_called(name)]
    if len(found) == 1:
        return found[0]
    if found:
        owners = " and ".join(str(record.origin) for record in found)
        remedy = "Name the distribution." if found[0].distribution else "Load one of the folders."
        raise UnknownComponentError(f"plugin {name!r} is in {owners}. {remedy}")
    raise UnknownComponentError(unknown_name("plugin", name, [record.name for record in records]))


def _about(record: PluginRecord) -> dict[str, Any]:  # Any: json
    about = _metadata(record)
    source = record.source
    if record.commit or record.path:
        source += f" {record.commit or ''} {record.path or ''}".replace("  ", " ").rstrip()
    return {
        "plugin": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "api": record.api,
        "status": record.state,
        "message": record.message,
        "remedy": record.remedy,
        "summary": about.get("Summary"),
        "source": source,
        "module": record.module,
        "licence": about.get("License-Expression") or about.get("License"),
        "docs": about.get("Project-URL") or about.get("Home-page"),
        "needs": ", ".join(about.get_all("Requires-Dist", [])) if record.distribution else None,
    }


def _metadata(record: PluginRecord) -> Any:  # Any: an email.message.Message
    from email.message import Message
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        return metadata(record.distribution) if record.distribution else Message()
    except PackageNotFoundError:
        return Message()


def _about_component(component: Component) -> dict[str, Any]:
    spec = component.spec
    about = {
        "kind": component.kind,
        "name": component.name,
        "target": spec.target,
        "origin": str(component.origin),
        "summary": spec.summary,
        "aliases": list(spec.aliases),
        "needs": sorted(spec.needs),
        "provides": sorted(spec.provides),
        "deprecated": spec.deprecated,
        "arguments": [],
        "error": "",
    }
    try:
        cls = component.load()
    except PluginError as error:
        return about | {"error": str(error)}
    first_line = (inspect.getdoc(cls) or "").partition("\n")[0]
    return about | {"summary": spec.summary or first_line, "arguments": _arguments(cls)}


def _arguments(cls: type) -> list[dict[str, Any]]:
    return [
        {
            "name": _STARS.get(parameter.kind, "") + parameter.name,
            "type": _shown(parameter.annotation),
            "has_default": _has_default(parameter),
            "default": parameter.default if _has_default(parameter) else None,
        }
        for parameter in inspect.signature(cls).parameters.values()
    ]


def _has_default(parameter: inspect.Parameter) -> bool:
    """Tell whether there is a value to show: a bare ``object()`` only marks what is left out."""
    return (
        parameter.default is not inspect.Parameter.empty and type(parameter.default) is not object
    )


_STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _shown(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _echo_component(about: dict[str, Any]) -> None:
    typer.echo("")
    typer.echo(f"{about['kind']}/{about['name']}  {about['target']}")
    for text in (about["summary"], about["error"]):
        if text:
            typer.echo(f"    {text}")
    for key in ("aliases", "needs", "provides"):
        if about[key]:
            typer.echo(f"    {key}: {', '.join(about[key])}")
    for argument in about["arguments"]:
        kind = f": {argument['type']}" if argument["type"] else ""
        default = f" = {argument['default']!r}" if argument["has_default"] else ""
        typer.echo(f"      {argument['name']}{kind}{default}")
