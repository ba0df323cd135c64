"""Opens the endpoints of the runs of this process; the first starts the server."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from trinity.common.models.clients import INSTALL
from trinity.endpoint.service import Service
from trinity.endpoint.session import Session
from trinity.endpoint.visitors import NO_KEY
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from trinity.common.models.model import ModelWrapper
    from trinity.endpoint.server import Server

logger = logging.getLogger(__name__)

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where a server that listens at all is found


class EndpointRoom:
    """The endpoint of one process; one that is forked from it gets a server of its own.

    Args:
        host: the address to listen at.
        port: 0: a free one.
        logs_requests: whether each request is a line of the log.
        api_key: one more key, for callers on this machine; their calls are of no run.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        logs_requests: bool = False,
        api_key: str = NO_KEY,
    ) -> None:
        self._host = host
        self._port = port
        self._logs_requests = logs_requests
        self._api_key = api_key
        self._begin()

    @property
    def num_open(self) -> int:
        """Return how many requests are being answered."""
        return self._service.num_open

    def open(self, model: ModelWrapper) -> Session:
        """Return a session for the run that the model belongs to.

        Raises:
            ConfigError: the port is taken, or a package is missing.
        """
        if self._process != os.getpid():  # forked: the server and its keys are the parent's
            self._port = 0
            self._begin()
        with self._lock:
            if self._server is None:
                self._server = self._started()
            server = self._server
        if model.settings.is_trained:
            self._service.visitors.meet(model)
        host = _LOOPBACK.get(server.host, server.host)
        host = f"[{host}]" if ":" in host else host
        return Session(
            model,
            keys=self._service.keys,
            base_url=f"http://{host}:{server.port}/v1",
            loop=server.loop,
        )

    def _begin(self) -> None:
        self._process = os.getpid()
        self._service = Service(logs_requests=self._logs_requests, api_key=self._api_key)
        self._server: Server | None = None
        self._lock = threading.Lock()

    def _started(self) -> Server:
        try:
            from trinity.endpoint.app import build_app
            from trinity.endpoint.server import Server, listening_at
        except ImportError as error:
            raise ConfigError(f"the endpoint needs the package {error.name}. {INSTALL}") from error
        remedy = "Set explorer.rollout_model.base_port to a free port, or leave it out."
        listening = listening_at(self._host, self._port, remedy=remedy)
        return Server(build_app(self._service), listening=listening)

    def close(self) -> None:
        """End the server; safe to call twice, and in a forked process."""
        if self._process != os.getpid():
            return
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()
        if self._service.keys.num_late:
            logger.warning(
                "%d calls of agents came after their runs were over", self._service.keys.num_late
            )
