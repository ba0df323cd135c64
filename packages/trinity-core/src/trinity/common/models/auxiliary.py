"""A model beside the trained one: a judge or a teacher, on engines whose weights stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trinity.common.models.model import ModelWrapper
    from trinity.common.ports import RolloutEngine, RunKey

__all__ = ["AuxiliaryModel", "wrapper_of"]

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
