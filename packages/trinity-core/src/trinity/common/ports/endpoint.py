"""How a run's model is reached over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.models.model import ModelWrapper
    from trinity.errors import ModelError


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where an agent finds its model; it ends with the run."""

    base_url: str  # http://127.0.0.1:40001/v1
    key: str = field(repr=False)  # never logged whole
    model: str  # its name, as the model list says it

    @property
    def env(self) -> Mapping[str, str]:
        """Return the environment variables that the SDKs of agents read."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.base_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": self.key,
        }


class RunSession(Protocol):
    """What stands behind the keys of one run attempt; thread-safe."""

    @property
    def failure(self) -> ModelError | None:
        """Return why the last exchange failed in the engine; None: it went well, or was none."""

    @property
    def num_served(self) -> int:
        """Return how many calls were answered."""

    @property
    def num_undelivered(self) -> int:
        """Return how many answers no client has heard: they are not trained on."""

    def endpoint(self, *, agent: str, record: bool, force_sampling: bool) -> Endpoint:
        """Return an endpoint with a key of its own.

        Args:
            agent: who asks by it, for ``info["agent"]``.
            record: whether the exchanges become experiences.
            force_sampling: whether the configuration's temperature, top_p, top_k win.
        """

    def close(self) -> None:
        """Refuse what comes, and cancel what is being answered; safe to call twice."""


class EndpointOpener(Protocol):
    """Opens endpoints in this process; the first starts the server."""

    def open(self, model: ModelWrapper) -> RunSession:
        """Return a session for the run that the model belongs to.

        Raises:
            ConfigError: a package is missing, or the port is taken.
        """

    def close(self) -> None:
        """End the server and all sessions; safe to call twice."""
