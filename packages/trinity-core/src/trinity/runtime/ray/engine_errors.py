"""What a run is told when the engine's process cannot answer it."""

from __future__ import annotations

from trinity.errors import ModelError


def given_up(error: Exception) -> ModelError:
    """Return why the engine is given up; an error of the model is its own reason."""
    if isinstance(error, ModelError):
        return error
    failure = ModelError(
        f"the rollout engine cannot be reached any more: {error}. The log of its process says why; "
        f"if memory ran out, lower model.max_model_len or explorer.rollout_model.engine_num. Start "
        f"the run again to go on from its last checkpoint."
    )
    failure.__cause__ = error
    return failure


def closed() -> ModelError:
    """Return what a request gets that came too late."""
    return ModelError("the rollout engine was closed before it answered.")
