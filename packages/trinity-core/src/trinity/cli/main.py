"""``trinity``: reads the global options, then hands over to one command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from trinity import __version__
from trinity.cli.failed_command import FINDINGS, failed, reported
from trinity.cli.lazy import LazyGroup
from trinity.cli.output import masked_output
from trinity.errors import unknown_name
from trinity.extend import PluginManager, set_manager

app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Fine-tune LLM agents with reinforcement learning.",
)


def main() -> None:
    """Run the command line and leave with 0 fine, 1 findings, 2 usage, 3 internal error."""
    with masked_output():
        try:
            typer.main.get_command(app)(list(map(_below_home, sys.argv[1:])), prog_name="trinity")
        except SystemExit as end:
            if not isinstance(end.code, str):
                raise
            sys.exit(reported(end.code, FINDINGS))  # here, where secrets are masked
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 -- the boundary of the command line
            sys.exit(failed(error))


def _below_home(word: str) -> str:
    """Return ``--to=~/model`` with the user's home, which shells leave alone after ``=``."""
    option, equals, path = word.partition("=")
    return option + equals + os.path.expanduser(path) if path.startswith("~/") else word


def show_version(is_wanted: bool) -> None:
    """Print the version and leave, before anything is looked for."""
    if is_wanted:
        typer.echo(f"trinity {__version__}")
        raise typer.Exit


@app.callback()
def options(
    p: Annotated[
        list[str] | None,
        typer.Option("-P", metavar="no:NAME", help="Disable a plugin. Repeatable."),
    ] = None,
    plugin_dir: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Load the plugins of a folder. Repeatable."),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Read the options of all commands."""
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


if __name__ == "__main__":
    main()
