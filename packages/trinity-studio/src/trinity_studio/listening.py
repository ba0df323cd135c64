"""A socket of this machine alone, for the commands that open pages."""

from __future__ import annotations

import socket

from trinity.errors import ConfigError

__all__ = ["HOST", "listening_at"]

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
