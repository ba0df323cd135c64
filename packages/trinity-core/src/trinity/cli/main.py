"""``trinity``: reads the global options, then hands over to one command."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Annotated

import typer

from trinity import __version__
from trinity.cli.lazy import LazyGroup
from trinity.cli.output import masked_output, plain
from trinity.common.secrets import masked
from trinity.errors import RayLostError, TrinityError, WorkerLostError, unknown_name
from trinity.extend import PluginManager, set_manager
from trinity.starting import INTERRUPTED, tell, was_interrupted

_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS}
_WRONG_PATH = {  # by what the system says: what to do
    errno.EACCES: "Let this user read and write it, or use another path.",
    errno.EPERM: "Let this user read and write it, or use another path.",
    errno.ENOENT: "Use a path that exists.",
    errno.ENOTDIR: "A part of the path is a file. Use another path.",
    errno.EISDIR: "It is a folder. Use a file.",
    errno.ENAMETOOLONG: "Use a shorter path.",
    errno.ELOOP: "Its links form a loop. Use another path.",
}

FINDINGS, INTERNAL_ERROR = 1, 3  # the other two, 0 and 2 (usage), are typer's own

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
            typer.main.get_command(app)(prog_name="trinity")
        except SystemExit as end:
            if not isinstance(end.code, str):
                raise
            sys.exit(_reported(end.code, FINDINGS))  # here, where secrets are masked
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 -- the boundary of the command line
            sys.exit(_failed(error))


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


def _failed(error: BaseException) -> int:
    """Say what went wrong; return the code."""
    if was_interrupted():  # and this is what a library made of it
        return INTERRUPTED
    if isinstance(error, (RayLostError, WorkerLostError)):
        tell(lost=masked(str(error)).partition(". ")[0])
    line = str(error) if isinstance(error, TrinityError) else ""
    if isinstance(error, OSError):
        line = _of_the_system(error)
    from trinity.common.memory import address_space_remark

    remark = address_space_remark(error)
    if remark:
        line = f"{(line or f'{type(error).__name__}: {error}').rstrip('.')}.{remark}"
    if line:
        return _reported(f"Error: {line}", FINDINGS)
    line = f"Internal error: {type(error).__name__}: {error}. Set TRINITY_DEBUG=1 for more."
    return _reported(line, INTERNAL_ERROR)


def _of_the_system(error: OSError) -> str:
    """Return what the system refused, and what to do; empty: it is no file's affair."""
    path = plain(str(error.filename2 or error.filename or ""))
    if error.errno in _NO_ROOM:
        where = f"{path} cannot be written" if path else "a file cannot be written"
        return f"{where}: {error.strerror}. Free space, or write to another disk."
    if error.errno in _WRONG_PATH and path:
        return f"{path} cannot be used: {error.strerror}. {_WRONG_PATH[error.errno]}"
    return ""


def _reported(line: str, code: int) -> int:
    if os.environ.get("TRINITY_DEBUG") == "1":
        traceback.print_exc()
    typer.echo(masked(line), err=True)
    return code


if __name__ == "__main__":
    main()
