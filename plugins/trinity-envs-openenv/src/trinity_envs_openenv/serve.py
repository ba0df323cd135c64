"""Serve an environment on a socket: a script that runs in the environment of its own.

python -P serve.py DESCRIPTOR module:variable, in the environment's folder. It imports nothing of
Trinity, which is not there.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys

import uvicorn


def main(descriptor: int, target: str) -> None:
    """Serve until the process is ended."""
    sys.path.insert(0, os.getcwd())
    module, _, name = target.partition(":")
    app = getattr(importlib.import_module(module), name or "app")
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="auto")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
