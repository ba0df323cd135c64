"""``trinity``: reads the global options, then hands over to one command."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from trinity import __version__
from trinity.cli.lazy import LazyGroup
from trinity.errors import TrinityError, unknown_name
from trinity.extend import PluginManager, set_manager

__all__ = ["app", "main"]

FINDINGS, INTERNAL_ERROR = 1, 3  # the other two, 0 and 2 (usage), are typer's own

app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train LLM agents with reinforcement learning; everything is a plugin.",
)


def main() -> None:
    """Run the command line and leave with 0 fine, 1 findings, 2 usage, 3 internal error."""
    try:
        typer.main.get_command(app)(prog_name="trinity")
    except TrinityError as error:
        sys.exit(_reported(f"Error: {error}", FINDINGS))
    except Exception as error:  # noqa: BLE001 -- the boundary of the command line
        line = f"Internal error: {type(error).__name__}: {error}. Set TRINITY_DEBUG=1 for more."
        sys.exit(_reported(line, INTERNAL_ERROR))


def show_version(is_wanted: bool) -> None:
    """Print the version and leave, before anything is looked for."""
    if is_wanted:
        typer.echo(f"trinity {__version__}")
        raise typer.Exit


@app.callback()
def options(
    p: Annotated[
        list[str] | None,
        typer.Option("-P", metavar="no:NAME", help="Leave a plugin out of this run; repeatable."),
    ] = None,
    plugin_dir: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Load the plugins of a folder; repeatable."),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=show_version, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Read what holds for every command."""
    if p or plugin_dir:
        manager = PluginManager.discover(plugin_dirs=plugin_dir or ())
        set_manager(manager.narrowed(disabled=_switched_off(p or [], manager)))


def _switched_off(switches: list[str], manager: PluginManager) -> list[str]:
    """Return the names of ``-P no:NAME``."""
    records = [plugin.record for plugin in manager.found]
    known = {name for r in records for name in (r.name, r.distribution) if name}
    names = []
    for switch in switches:
        prefix, _, name = switch.partition(":")
        if prefix != "no" or not name:
            raise typer.BadParameter(f"-P {switch}: write -P no:NAME")
        if not any(record.is_called(name) for record in records):
            raise typer.BadParameter(f"-P {switch}: {unknown_name('plugin', name, known)}")
        names.append(name)
    return names


def _reported(line: str, code: int) -> int:
    if os.environ.get("TRINITY_DEBUG") == "1":
        traceback.print_exc()
    typer.echo(line, err=True)
    return code


if __name__ == "__main__":
    main()
