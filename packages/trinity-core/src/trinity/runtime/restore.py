"""Put the workers of a run where a checkpoint stands, and name the one that cannot go there.

storage, trainer, explorer and strategy first, then the engines: the weights that they had, where
explorer and trainer go on by themselves, else the trainer's.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError, TrinityError
from trinity.runtime.parts import EXPLORER_STATE
from trinity.runtime.record.progress import read_progress, read_rollouts
from trinity.runtime.record.restart import check_style
from trinity.runtime.storage_state import load_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.checkpoint import Checkpoint
    from trinity.runtime.record.progress import Progress

logger = logging.getLogger(__name__)


def restore(
    parts: Parts,
    *,
    config: Config,
    directory: Path,
    checkpoint: Checkpoint | None,
    state: dict[str, Any],
    progress: Progress,
) -> None:
    """Put the parts where the saved place stands.

    Args:
        parts: new ones, that have done nothing.
        config: of the stage.
        directory: of the run.
        checkpoint: that the state lies in; None: a run without a trainer, whose state lies alone.
        state: what was saved, not empty (Any: json).
        progress: of the state; says afterwards which weights the engines have.

    Raises:
        CheckpointError: a part cannot go on from there; it names the part and the place.
    """
    place = checkpoint.path if checkpoint is not None else directory / EXPLORER_STATE
    if state["storage"] and parts.storage is not None:
        with _fitting("storage", place):
            name = config.buffer.trainer_input.experience_buffer.storage_type
            load_state(parts.storage, state["storage"], name=name)
    if checkpoint is not None and parts.trainer is not None:
        with _fitting("trainer", place):
            parts.trainer.load(checkpoint.actor)
        assert parts.storage is not None  # with a trainer there is one
        with _fitting("storage", place):
            parts.storage.write(checkpoint.read_experiences())
    if parts.explorer is not None:
        rollouts = read_rollouts(state, parts.policy)
        check_style(rollouts, parts.rollouts, place=place)
        if rollouts is not None:
            with _fitting("rollout buffer", place):
                parts.rollouts.load_state_dict(rollouts)
        with _fitting("explorer", place):
            parts.explorer.load_state_dict(state["explorer"])
    if parts.strategy is not None and state["strategy"]:
        with _fitting("strategy", place):
            parts.strategy.load_state_dict(state["strategy"])
    if parts.sync is not None and parts.trainer is not None:
        policy = parts.policy
        engines = state.get("engines") if policy.in_rounds and policy.can_overlap else None
        if engines and checkpoint is not None:
            with _fitting("engines", place):
                parts.load_engines(checkpoint.path, version=engines["version"])
        else:
            parts.sync.sync(partial(parts.trainer.snapshot, copy=False))
            progress.weights_version = progress.train_steps  # from here on
        parts.rollouts.weights_synced(version=progress.weights_version, frees=not policy.in_rounds)


@contextmanager
def _fitting(part: str, place: Path) -> Iterator[None]:
    """Turn what a part raises that cannot go on from a saved place into one line.

    Raises:
        CheckpointError: it cannot.
    """
    try:
        yield
    except (TrinityError, KeyboardInterrupt):
        raise
    except Exception as error:
        logger.info("the %s could not go on from %s", part, place, exc_info=True)
        raise CheckpointError(
            f"the {part} cannot go on from {place}: {type(error).__name__}: {error}. It is "
            f"damaged, or another version's. Rename it to go on from the one before it, or to "
            f"begin anew."
        ) from error


def name_of(state: dict[str, Any]) -> str:
    """Return what a person calls the place that a state stands at."""
    if not state:
        return "the beginning"
    progress = read_progress(state)
    return f"explore step {progress.explore_steps}, train step {progress.train_steps}"
