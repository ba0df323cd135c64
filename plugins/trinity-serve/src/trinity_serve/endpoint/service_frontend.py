"""The front of a service: one server for agents that run elsewhere."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trinity_serve.endpoint.app import build_app
from trinity_serve.endpoint.server import Server, listening_at
from trinity_serve.endpoint.serving import ServingService
from trinity_serve.endpoint.serving_routes import CountedApp, ServingRoutes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.auxiliary import AuxiliaryModel
    from trinity.common.models.model import ModelWrapper

    from trinity_serve.ports import RunStore


class ServiceFrontend:
    """LISTENING -> OPEN -> CLOSED; until it is open, who calls waits.

    Args:
        host: the address to listen at.
        port: 0: a free one.

    Raises:
        ConfigError: the address cannot be listened at.
    """

    def __init__(self, *, host: str, port: int) -> None:
        remedy = "Set explorer.proxy_port to a free port, or end what listens there."
        self._socket = listening_at(host, port, remedy=remedy)
        self._port = self._socket.getsockname()[1]
        self._host = f"[{host}]" if ":" in host else host
        self._service: ServingService | None = None
        self._server: Server | None = None
        self._committed = threading.Event()

    @property
    def url(self) -> str:
        """Return where agents reach it, without the ``/v1`` of their base URLs."""
        return f"http://{self._host}:{self._port}"

    def serve(
        self,
        models: Sequence[ModelWrapper],
        *,
        store: RunStore,
        keys: Sequence[str],
        logs_requests: bool,
        beside: Sequence[AuxiliaryModel] = (),
    ) -> None:
        """Say what is served once it is open; see ``ServingService``."""
        self._service = ServingService(
            models, store=store, keys=keys, beside=beside, logs_requests=logs_requests
        )

    def open(self) -> None:
        """Begin to answer; safe to call twice."""
        if self._server is not None:
            return
        assert self._service is not None, "serve() comes first"
        counted: CountedApp
        routes = ServingRoutes(
            self._service,
            committed=self._committed.set,
            num_answers=lambda: counted.num_answers,
        )
        further = {
            "/feedback": ("POST", routes.feedback),
            "/commit": ("POST", routes.commit),
            "/metrics": ("GET", routes.metrics),
        }
        counted = CountedApp(build_app(self._service, further=further))
        self._server = Server(counted, listening=self._socket)

    def wait(self, timeout_s: float) -> None:
        """Return when somebody commits, or time is up."""
        self._committed.wait(timeout_s)
        self._committed.clear()

    def busy(self) -> list[int]:
        """Return the runs that are being answered, by their numbers."""
        return self._service.busy() if self._service is not None else []

    def forget(self, runs: Sequence[int]) -> None:
        """Refuse further calls of these runs, by their numbers."""
        for run in runs:
            if self._service is not None:
                self._service.forget(run)

    def close(self) -> None:
        """Answer nothing any more, and free the port; safe to call twice."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
