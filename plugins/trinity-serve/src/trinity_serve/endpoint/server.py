"""An HTTP server in a thread of its own; the endpoints of a process's rollouts stand behind it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn
from trinity.errors import ConfigError

from trinity_serve.endpoint.app import build_app
from trinity_serve.endpoint.service import EndpointService
from trinity_serve.endpoint.session import Session
from trinity_serve.endpoint.visitors import NO_KEY

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from trinity.common.models.model import ModelWrapper


_KEEPS_ALIVE_S = 75  # an agent thinks, or its tool works, between two calls
_STARTS_WITHIN_S = 30.0
_STOPS_WITHIN_S = 5.0


class Server:
    """STARTED -> CLOSED.

    Args:
        app: what answers.
        listening: from :func:`listening_at`; closed with the server.

    Raises:
        ConfigError: it did not start.
    """

    def __init__(self, app: ASGIApp, *, listening: socket.socket) -> None:
        self._socket = listening
        self.host, self.port = self._socket.getsockname()[:2]
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",  # what a request meets is told by its answer
            access_log=False,
            lifespan="off",
            ws="none",
            interface="asgi3",
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEPS_ALIVE_S,
            timeout_graceful_shutdown=0,
        )
        self._server = _Uvicorn(config)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="trinity-endpoint", daemon=True)
        self._thread.start()
        if not self._server.is_ready.wait(_STARTS_WITHIN_S):
            raise ConfigError(f"the endpoint at {self.host}:{self.port} did not start. Try again.")

    def close(self) -> None:
        """Stop answering, and free the port; safe to call twice."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._server.stop)
            self._thread.join(_STOPS_WITHIN_S)
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        finally:
            self._server.is_ready.set()
            self.loop.close()


class _Uvicorn(uvicorn.Server):
    """Ends at once when it is told to, and wakes for nothing else."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = threading.Event()
        self._is_stopped = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = self.force_exit = True
        self._is_stopped.set()

    async def main_loop(self) -> None:
        self.is_ready.set()
        await self._is_stopped.wait()


def listening_at(host: str, port: int, *, remedy: str) -> socket.socket:
    """Return a socket that listens; what comes before a server has it waits.

    Args:
        host: the address.
        port: 0: a free one.
        remedy: what to do if it cannot, for the message.

    Raises:
        ConfigError: the address cannot be listened at.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where a socket says that it is of TCP.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(2048)
        bound.settimeout(0)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"the endpoint cannot listen at {host}:{port}: {error.strerror}. {remedy}"
        ) from error
    return bound


logger = logging.getLogger("trinity.endpoint")

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where a server that listens at all is found


class EndpointHost:
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
            ConfigError: the port is taken.
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
        self._service = EndpointService(logs_requests=self._logs_requests, api_key=self._api_key)
        self._server: Server | None = None
        self._lock = threading.Lock()

    def _started(self) -> Server:
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
                "refused %d model calls of agents whose rollouts had ended",
                self._service.keys.num_late,
            )
