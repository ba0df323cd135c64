"""What the engine is asked, who waits for it, and what they hear when it fails."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import EngineBrokenError, ModelError

from trinity_engine_vllm.tensor_parallel import ANSWER_LIMIT

if TYPE_CHECKING:
    from trinity.common.generation import PendingReply
    from trinity.common.generation.structure import Compiled
    from trinity.common.ports import GenerationRequest

__all__ = ["Asked", "asleep", "closed", "failure", "half_loaded"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Asked:
    """What vLLM is asked, and who waits for it."""

    prompt: tuple[int, ...]
    future: PendingReply[Any]  # Any: completions, or scores
    request: GenerationRequest | None  # None: a text to score
    compiled: Compiled | None = None  # the request's structure; None: any text


def failure(error: Exception, what: str, *, is_broken: bool = False) -> ModelError:
    """Return an error as the caller is to hear it: what could not be done, and why.

    Args:
        error: vLLM's, or ours.
        what: could not be done.
        is_broken: nothing else can be done any more, either.
    """
    if isinstance(error, ModelError):
        return error
    hint = ""
    if is_broken and isinstance(error, TimeoutError):
        limit = os.environ.get(ANSWER_LIMIT, "300")
        hint = (
            f" A worker process was silent for {limit} s, and all were ended; if "
            f"it was at work, raise {ANSWER_LIMIT} in explorer.env_vars."
        )
    told = (EngineBrokenError if is_broken else ModelError)(
        f"vLLM could not {what}: {type(error).__name__}: {' '.join(str(error).split())}{hint}"
    )
    told.__cause__ = error
    return told


def closed() -> ModelError:
    """Return what a request gets that came too late."""
    return ModelError("the rollout engine was closed before it answered.")


def asleep() -> ModelError:
    """Return what a request gets while the trainer uses the GPU."""
    return ModelError(
        "the rollout engine sleeps while the trainer uses its GPU, and answers nothing until it "
        "has woken up with new weights. Ask again after the train step."
    )


def half_loaded() -> ModelError:
    """Return what a request gets after weights that could not be loaded."""
    return ModelError(
        "new weights could not be loaded, and the engine may hold a part of them: it answers "
        "nothing until a later load succeeds. The log says what failed."
    )
