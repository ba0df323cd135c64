"""A socket of this machine alone, for the commands that open pages."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import typer
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["HOST", "listening_at", "serve"]

HOST = "127.0.0.1"


def listening_at(port: int) -> socket.socket:
    """Return a socket of this machine alone.

    Raises:
        ConfigError: the port is taken.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # who opens the address at once waits for the first answer
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigError(
            f"port {port} of {HOST} cannot be used: {getattr(error, 'strerror', error)}. Choose "
            f"another with --port, or any with --port 0."
        ) from error
    return listening


def serve(app: ASGIApp, listening: socket.socket, *, message: str, lifespan: str = "auto") -> None:
    """Serve the pages until Ctrl-C; print the message once they are served.

    Not earlier: who reads it may send Ctrl-C at once, and until the server has its own handlers
    that would be lost, or end the command in the middle of an import.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            typer.echo(message)

    settings = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan=lifespan, server_header=False
    )
    Server(settings).run(sockets=[listening])
