"""The endpoints of one run, by which agents of any framework find its model."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trinity.common.models.clients import _SWITCH, client_of
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from openai import OpenAI

    from trinity.common.models.model import ModelWrapper
    from trinity.common.ports import Endpoint, EndpointOpener, RunSession


class RunEndpoints:
    """The endpoints of the run that a model wrapper belongs to.

    Attributes:
        opener: of this process; None: nobody gave one.
        session: that is open; None: nobody asked for an endpoint.
    """

    def __init__(self, opener: EndpointOpener | None) -> None:
        self.opener = opener
        self.session: RunSession | None = None
        self._clients: list[OpenAI] = []
        self._lock = threading.Lock()

    def endpoint(
        self, model: ModelWrapper, *, agent: str, record: bool, force_sampling: bool
    ) -> Endpoint:
        """Return an endpoint of the run, with a key of its own.

        Raises:
            ConfigError: there is no server here, or it is switched off.
        """
        if self.opener is None or not model.settings.enable_openai_api:
            raise ConfigError(
                f"this model has no endpoint: {_SWITCH} is false. Set {_SWITCH}: true."
            )
        with self._lock:
            if self.session is None:
                self.session = self.opener.open(model)
            session = self.session
        return session.endpoint(agent=agent, record=record, force_sampling=force_sampling)

    def client(self, endpoint: Endpoint) -> OpenAI:
        """Return a client that is closed with the run."""
        client = client_of(endpoint)
        with self._lock:
            self._clients.append(client)
        return client

    def close(self) -> None:
        """End the session and its clients; the next endpoint opens another."""
        with self._lock:
            session, self.session = self.session, None
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()
        if session is not None:
            session.close()
