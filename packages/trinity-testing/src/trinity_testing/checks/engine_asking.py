"""Open an engine on the tiny model that it is compared with, and ask it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trinity.common.models.pretrained import no_progress_bars
from trinity.common.ports import GenerationRequest
from trinity.extend import KINDS
from trinity.extend.kind import parameters_of
from trinity.runtime.plugin_adapter import adapted

from trinity_testing.check import Skipped
from trinity_testing.checks import engine_reference as reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.ports import Completion
    from trinity.extend.component import Component

    from trinity_testing.check import CheckContext

__all__ = ["LIMIT_S", "TOLERANCE", "answer", "opened", "request"]

MAX_MODEL_LEN = 64
LIMIT_S = 20.0
TOLERANCE = 2e-3  # of a log-probability: engines may compute in another order


@contextmanager
def opened(component: Component, context: CheckContext) -> Iterator[Any]:
    """Make an engine as the explorer would, and close it at the end.

    Raises:
        Skipped: it asks an external API.
    """
    kind, cls = KINDS["rollout_engine"], context.load(component)
    if "external_model_config" in (parameters_of(cls) or ()):
        raise Skipped("it asks an external API, not the model that it would be compared with")
    with no_progress_bars():
        engine = kind.made(
            cls,
            context.arguments(component),
            model_path=str(reference.model_folder(0)),
            dtype="float32",
            seed=0,
            max_model_len=MAX_MODEL_LEN,
            trust_remote_code=False,
            module=None,
        )
    try:
        yield adapted(engine, component)
    finally:
        engine.close()


def request(**settings: Any) -> GenerationRequest:
    """Return a request for at most 12 tokens after the prompt that the model is compared at."""
    defaults = {
        "prompt_token_ids": reference.PROMPT,
        "max_new_tokens": 12,
        "ignore_eos": False,
    }
    return GenerationRequest(**(defaults | settings))


def answer(engine: Any, **settings: Any) -> list[Completion]:
    """Ask, and wait for the replies."""
    replies: list[Completion] = engine.submit(request(**settings)).result(LIMIT_S)
    return replies
