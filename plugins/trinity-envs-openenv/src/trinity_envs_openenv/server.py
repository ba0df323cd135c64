"""Servers that are started from a folder: one for each, shared by the runs of this process.

served(folder) --> the server that runs, or a new one: python serve.py, leashed to this process
close_servers() at the end of a run
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import yaml
from trinity.common.workflows.leash import LeashedProcess
from trinity.errors import ConfigError, EnvError
from trinity.extend import environment_python

from trinity_envs_openenv.asked import asked
from trinity_envs_openenv.environment import ENVIRONMENT

__all__ = ["app_of", "close_servers", "python_for", "served"]

_STARTS_WITHIN_S = 120.0
_PAUSE_S = 0.05
_TAIL_BYTES = 2000  # of what it printed, shown where it fails
_SCRIPT = Path(__file__).with_name("serve.py")
_NOT_ITS_OWN = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}


def served(folder: str, *, app: str) -> str:
    """Return the URL of the folder's server; it is started where none runs.

    Raises:
        ConfigError: the folder names no app.
        PluginError: the environment to serve it in is missing.
        EnvError: the server cannot be started.
    """
    key = (os.path.abspath(folder), app)
    with _lock:
        server = _servers.get(key)
        if server is None or not server.is_running:
            if server is not None:
                server.close()
            _servers[key] = server = _Server(Path(key[0]), app=app_of(folder, app=app))
    server.wait()
    return server.url


def close_servers() -> None:
    """End all servers of this process."""
    with _lock:
        servers = list(_servers.values())
        _servers.clear()
    for server in servers:
        server.close()


def app_of(folder: str, *, app: str) -> str:
    """Return ``module:variable`` of the folder's app: given, else that of its openenv.yaml.

    Raises:
        ConfigError: there is none.
    """
    if app:
        return app
    file = Path(folder, "openenv.yaml")
    try:
        said = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{file} cannot be read: {' '.join(str(error).split())}. Name the app of the server as "
            f"workflow_args.app, such as server.app:app."
        ) from error
    named = said.get("app") if isinstance(said, dict) else None
    if not isinstance(named, str) or not named:
        raise ConfigError(
            f"{file} names no app. Name it as workflow_args.app, such as server.app:app."
        )
    return named


def python_for(folder: str) -> Path:
    """Return the interpreter that serves the folder: of its ``.venv``, else of our environment.

    Raises:
        PluginError: neither is there.
    """
    own = Path(folder, ".venv", "bin", "python")
    return own.absolute() if own.exists() else environment_python(ENVIRONMENT)


_servers: dict[tuple[str, str], _Server] = {}
_lock = threading.Lock()


class _Server:
    """A process that serves one folder on a port of its own."""

    def __init__(self, folder: Path, *, app: str) -> None:
        self._folder = folder
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by close()
        self._ready = threading.Lock()
        self._is_ready = False
        with socket.create_server(("127.0.0.1", 0)) as listening:  # here it is closed again
            self.url = "http://{}:{}".format(*listening.getsockname())
            words = [str(python_for(str(folder))), "-P", str(_SCRIPT), str(listening.fileno()), app]
            try:
                self._process = LeashedProcess(
                    words,
                    cwd=folder,
                    env={k: v for k, v in os.environ.items() if k not in _NOT_ITS_OWN},
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[listening.fileno()],
                )
            except OSError as error:
                self._output.close()
                raise EnvError(f"the server of {folder} cannot be started: {error}") from error

    @property
    def is_running(self) -> bool:
        """Return whether the process has not ended, and its port takes connections."""
        return self._process.is_running and not self._is_refused()

    def wait(self) -> None:
        """Return when it answers.

        Raises:
            EnvError: it ended, or does not answer in time.
        """
        until = time.monotonic() + _STARTS_WITHIN_S
        with self._ready:
            while not self._is_ready:
                if not self._process.is_running:
                    raise EnvError(
                        f"the server of {self._folder} ended with code "
                        f"{self._process.process.returncode}. It printed: {self._told()}"
                    )
                if time.monotonic() > until:
                    self._process.kill()
                    raise EnvError(
                        f"the server of {self._folder} did not answer in {_STARTS_WITHIN_S:g} s. "
                        f"It printed: {self._told()}"
                    )
                self._is_ready = self._answers()

    def close(self) -> None:
        """End it; who waits for it hears that."""
        self._process.end()
        with self._ready:
            self._output.close()

    def _is_refused(self) -> bool:
        """Return whether nobody listens: what serves may be gone before its process is seen to."""
        parts = urlsplit(self.url)
        try:
            socket.create_connection((str(parts.hostname), parts.port or 0), timeout=1.0).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # it is busy
        return False

    def _answers(self) -> bool:
        try:
            with asked(f"{self.url}/health", timeout_s=1.0):
                return True
        except urllib.error.HTTPError:
            return True  # it has no such page, and is there
        except OSError:
            time.sleep(_PAUSE_S)
            return False

    def _told(self) -> str:
        if self._output.closed:
            return "nothing that is kept"
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _TAIL_BYTES))
        return self._output.read().decode(errors="replace").strip() or "nothing"
