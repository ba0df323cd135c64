"""The studio's server: Streamlit behind a token, and the viewer of runs beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trinity_studio.guard import Guard
from trinity_studio.view.server import app_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from trinity_studio.view.run import Run

__all__ = ["served", "studio_app"]

PAGE = Path(__file__).with_name("page.py")


@dataclass(kw_only=True)
class Served:
    """What the page has to know of the server that shows it; its script runs in this process.

    Attributes:
        view_root: where the viewer of runs is, such as "/TOKEN/"; "": there is none.
        directories: of the runs that the viewer shows.
        options: of the command line, that runs are started with too.
        file: a YAML file that the page opens with; "": none.
        manager: "module:Class" of the ConfigManager that draws the page; "": ours.
    """

    view_root: str = ""
    directories: list[Path]
    options: list[str]
    file: str = ""
    manager: str = ""


served = Served(directories=[], options=[])


def studio_app(
    *,
    token: str,
    view_token: str,
    find: Callable[[], Sequence[Run]],
    port: int,
    may_ask_servers: bool = False,
) -> ASGIApp:
    """Return the application: the page below one token, the viewer below the other.

    Args:
        token: first part of every address of the page.
        view_token: first part of every address of the viewer.
        find: gives the runs that the viewer shows.
        port: that is listened at.
        may_ask_servers: whether the viewer asks servers that only a run directory names.
    """
    from streamlit import config
    from streamlit.starlette import App

    for name, value in _options(token, port).items():
        config.set_option(name, value)
    page = Guard(App(PAGE), token=token)
    viewer = app_of(find, token=view_token, may_ask_servers=may_ask_servers)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_of_viewer = scope["type"] == "http" and scope["path"].startswith(f"/{view_token}/")
        await (viewer if is_of_viewer else page)(scope, receive, send)

    return app


def _options(token: str, port: int) -> dict[str, object]:
    """Return Streamlit's settings: this machine alone, nothing is told to anybody."""
    return {
        "server.baseUrlPath": token,
        "server.address": "127.0.0.1",
        "server.port": port,
        "server.headless": True,
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.fileWatcherType": "none",
        "server.enableStaticServing": False,
        "server.showEmailPrompt": False,
        "browser.gatherUsageStats": False,
        "browser.serverAddress": "127.0.0.1",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "global.developmentMode": False,
    }
