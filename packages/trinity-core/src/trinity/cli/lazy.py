"""A command group that imports a command when it is called, not when it is listed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from trinity.errors import unknown_name
from trinity.extend import get_manager

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COMMANDS", "LazyGroup"]

COMMANDS: Mapping[str, tuple[str, str]] = {  # name -> "module:app or function", what it does
    "run": ("trinity.cli.run:run", "Train, explore or evaluate, as a configuration says."),
    "config": ("trinity.cli.config:app", "Check, show and describe configurations."),
    "plugins": ("trinity.cli.plugins:app", "List, inspect, check and create plugins."),
}


class LazyGroup(TyperGroup):
    """``trinity`` itself: our commands, then those of plugins (hook ``trinity_commands``)."""

    def list_commands(self, ctx: Any) -> list[str]:  # Any: a click context, vendored or not
        """Return the names of all commands; imports plugin modules, and no command."""
        return [*COMMANDS, *sorted(set(_plugin_commands()) - set(COMMANDS))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command that carries the name and the help, for listings."""
        if cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])
        if cmd_name in _plugin_commands():
            return TyperCommand(cmd_name, help=f"(plugin {_plugin_commands()[cmd_name][1]})")
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the real command, imported now."""
        name = args[0]
        target = COMMANDS[name][0] if name in COMMANDS else _plugin_commands().get(name, ("",))[0]
        if not target:
            ctx.fail(unknown_name("command", name, self.list_commands(ctx)))
        return name, _imported_command(name, target), args[1:]


def _imported_command(name: str, target: str) -> Any:  # Any: a click command, vendored or not
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    single = typer.Typer(add_completion=False)
    single.command(name)(found)
    return typer.main.get_command(single)


def _plugin_commands() -> dict[str, tuple[str, str]]:
    """Return the commands of plugins: name -> target, plugin."""
    return {
        name: (target, record.label)
        for record, commands in get_manager().call("trinity_commands")
        for name, target in commands.items()
    }
