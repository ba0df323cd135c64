"""``trinity studio``: make a configuration in a browser, and run it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from trinity.extend.component import imported_target, look_in_working_directory

from trinity_studio.listening import HOST, listening_at, serve
from trinity_studio.options import Databases

if TYPE_CHECKING:
    from trinity_studio.view.run import Run

__all__ = ["studio"]

PORT = 8501


def studio(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file to open.")
    ] = None,
    port: Annotated[int, typer.Option("--port", "-p", help="Port at 127.0.0.1; 0: any.")] = PORT,
    manager: Annotated[
        str, typer.Option(metavar="MODULE:CLASS", help="Your ConfigManager class.")
    ] = "",
    databases: Databases = False,
) -> None:
    """Edit a configuration in a browser; start, watch and stop its run.

    Listens at 127.0.0.1 only. The printed address contains a token; whoever has it can run
    programs as you. Runs continue after the studio ends.
    """
    from trinity_studio.studio.server import served, studio_app

    _refuse_early(config, manager)
    token, view_token = secrets.token_urlsafe(18), secrets.token_urlsafe(18)
    listening = listening_at(port)
    number = listening.getsockname()[1]
    served.view_root, served.manager = f"/{view_token}/", manager
    served.options = _options_of(context)
    served.file = str(config) if config is not None else ""
    app = studio_app(
        token=token,
        view_token=view_token,
        find=_runs,
        port=number,
        may_ask_servers=databases,
    )
    message = (
        f"http://{HOST}:{number}/{token}/\n"
        f"Open that address; whoever has it can run programs as you. Ctrl-C ends it."
    )
    serve(app, listening, message=message)


def _options_of(context: typer.Context) -> list[str]:
    """Return the options of ``trinity`` itself, as they were given."""
    given = context.parent.params if context.parent is not None else {}
    folders = [
        part for folder in given.get("plugin_dir") or () for part in ("--plugin-dir", folder)
    ]
    return [*folders, *(part for switch in given.get("p") or () for part in ("-P", switch))]


def _refuse_early(config: Path | None, manager: str) -> None:
    """Read the file and import the class, before anybody opens a page for nothing.

    Raises:
        typer.BadParameter: one of them is not there.
        ConfigError: the file is no YAML.
    """
    from trinity_studio.studio.document import Document

    if config is not None:
        try:
            text = config.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise typer.BadParameter(f"--config {config}: {reason}") from error
        Document.read(text, name=str(config))
    if manager:
        try:
            look_in_working_directory(manager)
            imported_target(manager)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise typer.BadParameter(f"--manager {manager}: {reason}") from error


def _runs() -> list[Run]:
    from trinity.errors import ConfigError

    from trinity_studio.studio.server import served
    from trinity_studio.view.run import find_runs

    found: list[Run] = []
    for directory in served.directories:
        try:
            found += find_runs([directory])
        except ConfigError:  # it has not begun to write
            continue
    return found
