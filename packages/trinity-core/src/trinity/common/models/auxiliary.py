"""A model beside the trained one: a judge or a teacher, on engines whose weights stay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from trinity.common.models.clients import api_async_client, api_client
from trinity.common.models.settings import ModelSettings
from trinity.errors import ModelError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    from trinity.common.models.model import ModelWrapper
    from trinity.common.ports import RolloutEngine, RunKey

_WRAPPER = "trinity_model"  # of a client: the wrapper behind it


class Auxiliary(ABC):
    """One entry of ``explorer.auxiliary_models``; nothing that it says is trained on."""

    @abstractmethod
    def for_run(self, key: RunKey) -> Any:  # Any: openai.OpenAI
        """Return a client for a run; its wrapper is :func:`wrapper_of` it."""

    @abstractmethod
    def close(self) -> None:
        """End what it holds; safe to call twice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AuxiliaryModel(Auxiliary):
    """One on engines of its own."""

    model: ModelWrapper  # each run gets one of its own
    engines: tuple[RolloutEngine, ...]

    def for_run(self, key: RunKey) -> Any:  # Any: openai.OpenAI
        """Return a client for a run; its wrapper is :func:`wrapper_of` it."""
        engine = self.engines[key.task % len(self.engines)]
        wrapper = self.model.for_run(key, engine=engine)
        client: Any = wrapper.get_openai_client(record=False)
        setattr(client, _WRAPPER, wrapper)
        return client

    def close(self) -> None:
        """End its engines; safe to call twice."""
        for engine in self.engines:
            engine.close()


@dataclass(frozen=True, kw_only=True, eq=False)
class ExternalModel(Auxiliary):
    """One behind somebody else's API; all runs share its client."""

    name: str
    client: Any  # openai.OpenAI

    @classmethod
    def at(
        cls, base_url: str, *, api_key: str, name: str, settings: ModelSettings | None = None
    ) -> ExternalModel:
        """Return the model of an API.

        Args:
            base_url: of the API.
            api_key: that it asks for.
            name: of the model there.
            settings: how it is to be asked, for who reads them; None: nothing is said of it.
        """
        settings = settings or ModelSettings(model_path=name)
        wrapper = _Api(model_path=name, base_url=base_url, api_key=api_key, config=settings)
        client = wrapper.get_openai_client()
        setattr(client, _WRAPPER, wrapper)
        return cls(name=name, client=client)

    def for_run(self, key: RunKey) -> Any:  # Any: openai.OpenAI
        """Return the client, whose ``model_path`` is the model's name."""
        return self.client

    def close(self) -> None:
        """End the connections; safe to call twice."""
        self.client.close()


@dataclass(frozen=True, kw_only=True)
class _Api:
    """Stands for the wrapper of a model that gives texts only."""

    model_path: str
    base_url: str
    api_key: str = field(repr=False)
    config: ModelSettings  # of its section

    @property
    def model_config(self) -> ModelSettings:
        """Return the same under the other published name."""
        return self.config

    @property
    def generate_kwargs(self) -> dict[str, Any]:  # Any: each as OpenAI's clients take it
        """Return what a client is given to ask as the section says."""
        return self.config.generate_kwargs

    def get_openai_client(self, record: bool = False) -> OpenAI:  # noqa: FBT001, FBT002 -- as wrappers
        """Return a client; nothing is recorded."""
        return api_client(self.base_url, api_key=self.api_key, model=self.model_path)

    def get_openai_async_client(self, record: bool = False) -> AsyncOpenAI:  # noqa: FBT001, FBT002
        """Return a client for those that await."""
        return api_async_client(self.base_url, api_key=self.api_key, model=self.model_path)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(
            f"auxiliary_model_wrappers: {name!r} is asked of {self.model_path!r}, which is behind "
            f"an external API and gives texts only. Ask it by the client in auxiliary_models, or "
            f"give it an engine: leave out external_model_config."
        )


def wrapper_of(client: Any) -> Any:  # Any: what a workflow was given
    """Return the ``ModelWrapper`` behind a client; what is no such client stays itself."""
    return getattr(client, _WRAPPER, client)


def auxiliary_client(given: Any, *, is_async: bool) -> Any:  # Any: a client, or what was given
    """Return the client that a workflow asks an auxiliary model with.

    Args:
        given: the run's client, or a ``ModelWrapper``; anything else stays itself.
        is_async: return one that awaits. It belongs to one event loop.
    """
    wrapper = wrapper_of(given)
    if not hasattr(wrapper, "get_openai_client") or (wrapper is not given and not is_async):
        return given
    make = wrapper.get_openai_async_client if is_async else wrapper.get_openai_client
    client: Any = make(record=False)
    setattr(client, _WRAPPER, wrapper)
    return client
