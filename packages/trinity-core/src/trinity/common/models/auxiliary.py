"""A model beside the trained one: a judge or a teacher, on engines whose weights stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trinity.common.models.model import ModelWrapper
    from trinity.common.ports import RolloutEngine, RunKey

__all__ = ["AuxiliaryModel", "auxiliary_client", "wrapper_of"]

_WRAPPER = "trinity_model"  # of a client: the wrapper behind it


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AuxiliaryModel:
    """One entry of ``explorer.auxiliary_models``; nothing that it says is trained on."""

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
