"""Find where a stage goes on, and put its files and workers there; name what cannot go there.

storage, trainer, explorer and strategy first, then the engines: the weights that they had, where
explorer and trainer go on by themselves, else the trainer's.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError, TrinityError
from trinity.runtime.audit import audited_sync
from trinity.runtime.parts import Restored
from trinity.runtime.record.checkpoint import FROM_MODEL, CheckpointStore, read_weights
from trinity.runtime.record.progress import read_progress, read_rollouts
from trinity.runtime.record.records import StateRecord, read_record
from trinity.runtime.record.restart import check_style
from trinity.runtime.record.rundir import EXPLORER_STATE
from trinity.runtime.record.sample_files import cut_samples
from trinity.runtime.storage_state import load_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.checkpoint import Checkpoint
    from trinity.runtime.record.progress import Progress
    from trinity.runtime.record.rewind import GrowingFiles
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)


EXPLORE_ANEW = (
    "Put it back from a copy. Or remove it: all is explored anew, and what was written is cut off."
)
EXPLORE_BESIDE = (
    "Put it back from a copy. Or leave it and set another explorer.name, which explores from the "
    "beginning beside what the ledger has; under this name the ledger would take no step twice."
)


def saved_place(
    config: Config, rundir: RunDir, *, say: Callable[[str], None]
) -> tuple[Checkpoint | None, dict[str, Any]]:
    """Return where a stage goes on: a checkpoint and its state, empty at the beginning.

    Args:
        config: of the stage.
        rundir: of the stage.
        say: is told of checkpoints that are passed over.

    Raises:
        CheckpointError: what is there cannot be gone on from.
    """
    path = rundir.path / EXPLORER_STATE
    collects = config.mode != "bench" and not config.has_trainer
    if collects and os.path.lexists(path):
        remedy = EXPLORE_BESIDE if config.shares_run_directory else EXPLORE_ANEW
        return None, read_record(path, StateRecord, remedy=remedy)
    if config.has_trainer:
        checkpoints = CheckpointStore(rundir.path)
        checkpoints.recover()
        checkpoint = checkpoints.newest_whole(say=say)
        if checkpoint is not None:
            state = checkpoint.read_state()
            _check_mode(state["mode"], config.mode, checkpoint)
            return checkpoint, state
    return None, {}


def _check_mode(then: str, now: str, checkpoint: Checkpoint) -> None:
    """Refuse to count the steps of one mode on in another."""
    if then != now:
        raise CheckpointError(
            f"{checkpoint.path} was made in mode {then}; mode is {now}. Set it back. {FROM_MODEL}"
        )


def rewind(
    config: Config, files: GrowingFiles, state: dict[str, Any], *, say: Callable[[str], None]
) -> None:
    """Cut the files of a stage back to a saved place; an empty state is the beginning.

    Raises:
        CheckpointError: a file is not the one that was written.
    """
    if config.mode == "bench":
        return  # trains nothing; its lines belong to checkpoints
    if state:
        files.check(state["files"], say=say)
        files.cut(state["files"])
    else:
        files.cut_to_beginning()
    if config.has_trainer:  # last: a start that is refused keeps the samples
        trained = read_progress(state).train_steps if state else 0
        for problem in cut_samples(files.rundir.path, trained=trained):
            logger.warning("%s", problem)


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
                load_engines(parts, checkpoint.path, version=engines["version"])
        else:
            audited_sync(parts, partial(parts.trainer.snapshot, copy=False))
            progress.note_restored()
        parts.rollouts.weights_synced(version=progress.weights_version, frees=not policy.in_rounds)


def load_engines(parts: Parts, checkpoint: Path, *, version: int) -> None:
    """Give the engines the weights that they had at a checkpoint; 0: the model's own."""
    snapshot = read_weights(checkpoint, version=version) if version else None
    parts.restored = Restored(version, snapshot if parts.engine_weights is None else None)
    if snapshot is None:
        return
    if parts.engine_weights is not None:
        parts.engine_weights.load(snapshot)
    elif parts.sync is not None:
        audited_sync(parts, lambda: snapshot)


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
