"""The clients of one run: OpenAI's own, pointed at the run's endpoint."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    from trinity.common.models.model import ModelWrapper
    from trinity.common.models.settings import ModelSettings
    from trinity.common.ports import Endpoint, EndpointOpener, RunSession

__all__ = [
    "INSTALL",
    "ClientsOfRun",
    "RunEndpoints",
    "api_async_client",
    "api_client",
    "async_client_of",
    "client_of",
]

INSTALL = "Install it: pip install 'trinity-core[api]'."
_SWITCH = "explorer.rollout_model.enable_openai_api"


class RunEndpoints:
    """The endpoints of the run that a model wrapper belongs to.

    Args:
        opener: of this process; None: nobody gave one.
    """

    def __init__(self, opener: EndpointOpener | None) -> None:
        self.opener = opener
        self._session: RunSession | None = None
        self._clients: list[OpenAI] = []
        self._lock = threading.Lock()

    @property
    def failure(self) -> ModelError | None:
        """Return why the last exchange failed in the engine; None: it went well, or was none."""
        return self._session.failure if self._session is not None else None

    @property
    def num_served(self) -> int:
        """Return how many calls were answered."""
        return self._session.num_served if self._session is not None else 0

    @property
    def num_undelivered(self) -> int:
        """Return how many answers no client has heard."""
        return self._session.num_undelivered if self._session is not None else 0

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
            if self._session is None:
                self._session = self.opener.open(model)
            session = self._session
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
            session, self._session = self._session, None
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()
        if session is not None:
            session.close()


class ClientsOfRun:
    """What a model wrapper offers to agents that speak HTTP."""

    _endpoints: RunEndpoints
    _settings: ModelSettings

    @property
    def settings(self) -> ModelSettings:
        """Return how the model is asked where a call does not say it."""
        return self._settings

    @property
    def config(self) -> ModelSettings:
        """Return the settings, with the ``name`` of an auxiliary model; published."""
        return self._settings

    model_config = config  # published, too

    @property
    def generate_kwargs(self) -> dict[str, Any]:  # Any: each as OpenAI's clients take it
        """Return what an OpenAI client of this model is given to ask as the settings say."""
        return self._settings.generate_kwargs

    def endpoint(
        self, agent: str = "", *, record: bool = True, force_sampling: bool = True
    ) -> Endpoint:
        """Return where an agent of any framework finds this model, until the run ends.

        Args:
            agent: who asks, for ``info["agent"]`` of the experiences.
            record: whether the exchanges become experiences.
            force_sampling: whether the configuration's temperature, top_p and top_k win over the
                agent's own.

        Raises:
            ConfigError: ``explorer.rollout_model.enable_openai_api`` is off.
        """
        model: Any = self  # Any: the wrapper that this is a part of
        return self._endpoints.endpoint(
            model, agent=agent, record=record, force_sampling=force_sampling
        )

    def get_openai_client(self, record: bool = True) -> OpenAI:  # noqa: FBT001, FBT002 -- published
        """Return OpenAI's client of this model, with its name as ``client.model_path``.

        Args:
            record: whether the calls become experiences.

        Raises:
            ConfigError: ``explorer.rollout_model.enable_openai_api`` is off.
        """
        return self._endpoints.client(self.endpoint(record=record, force_sampling=False))

    def get_openai_async_client(self, record: bool = True) -> AsyncOpenAI:  # noqa: FBT001, FBT002 -- published
        """Return the client for those that await; take one for each event loop."""
        return async_client_of(self.endpoint(record=record, force_sampling=False))

    @property
    def num_served(self) -> int:
        """Return how many calls of this run came by its endpoint and were answered."""
        return self._endpoints.num_served

    def check_served(self) -> None:
        """Say so if the last call by the endpoint got no reply from the engine.

        Raises:
            ModelError: an agent went on without its model.
        """
        failure = self._endpoints.failure
        if failure is not None:
            raise ModelError(f"the last call of the agent got no reply: {failure}") from failure


def client_of(endpoint: Endpoint) -> OpenAI:
    """Return OpenAI's client for an endpoint.

    Raises:
        ConfigError: the package is missing.
    """
    openai = _openai()
    http = openai.DefaultHttpxClient(verify=False, trust_env=False)  # loopback: no TLS, no proxy
    client: OpenAI = openai.OpenAI(
        base_url=endpoint.base_url, api_key=endpoint.key, http_client=http
    )
    client.model_path = endpoint.model  # type: ignore[attr-defined]  # published
    return client


def async_client_of(endpoint: Endpoint) -> AsyncOpenAI:
    """Return OpenAI's client for those that await; see :func:`client_of`."""
    openai = _openai()
    http = openai.DefaultAsyncHttpxClient(verify=False, trust_env=False)
    client: AsyncOpenAI = openai.AsyncOpenAI(
        base_url=endpoint.base_url, api_key=endpoint.key, http_client=http
    )
    client.model_path = endpoint.model  # type: ignore[attr-defined]
    return client


def api_client(base_url: str, *, api_key: str, model: str) -> OpenAI:
    """Return OpenAI's client for an API elsewhere; its ``model_path`` is the model's name.

    Raises:
        ConfigError: the package is missing.
    """
    client: OpenAI = _openai().OpenAI(base_url=base_url, api_key=api_key)
    client.model_path = model  # type: ignore[attr-defined]
    return client


def api_async_client(base_url: str, *, api_key: str, model: str) -> AsyncOpenAI:
    """Return the client for those that await; see :func:`api_client`."""
    client: AsyncOpenAI = _openai().AsyncOpenAI(base_url=base_url, api_key=api_key)
    client.model_path = model  # type: ignore[attr-defined]
    return client


def _openai() -> Any:  # Any: the package
    try:
        import openai
    except ImportError as error:
        raise ConfigError(f"a client needs the package openai. {INSTALL}") from error
    return openai
