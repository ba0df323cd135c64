"""When a checkpoint is written whole, and what of the buffer and the explorer is in it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError, RayLostError, WorkerLostError
from trinity.runtime.rollouts import explorer_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.runtime.parts import Parts
    from trinity.runtime.record.progress import Progress

logger = logging.getLogger(__name__)


class Saver:
    """Writes the checkpoints of a stage; called by the loop's thread alone.

    Args:
        parts: of the stage.

    Attributes:
        explorer_state: where the explorer stood when its last step ended (Any: json). Where groups
            begin one by one it is asked at each save: they end at any time.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.explorer_state: dict[str, Any] = {}
        self._held: object = None  # what the last checkpoint of this process was written for
        self._saved_steps = 0  # train steps in it

    @contextmanager
    def saved(self, progress: Progress) -> Iterator[None]:
        """Save what was trained inside, at the end and where a part fails.

        Raises:
            CheckpointError, OSError: it cannot be written.
        """
        if self._parts.groups is None:
            self.explorer_state = explorer_state(self._parts)
        try:
            yield
        except (CheckpointError, WorkerLostError, RayLostError, KeyboardInterrupt):
            raise  # it would fail again; half of what is lost with a worker is no state to save
        except BaseException:  # what was trained is saved
            self._save_after_failure(progress)
            raise
        self.save(progress)

    def resumed(self, progress: Progress) -> None:
        self._held, self._saved_steps = self._held_by(progress), progress.train_steps

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; where the last one is of this place, only how far the run is.

        Raises:
            CheckpointError, OSError: it cannot be written.
        """
        parts, buffer = self._parts, self._parts.rollouts
        with buffer.changed:
            held = self._held_by(progress)
            if parts.groups is None:
                self.explorer_state = {**self.explorer_state, "rollouts": buffer.state_dict()}
        if parts.groups is not None:
            self.explorer_state, held = explorer_state(parts), None
        is_saved = held is not None and held == self._held
        write = parts.writer.save_progress if is_saved else parts.writer.save
        write(progress, self.explorer_state)
        self._held, self._saved_steps = held, progress.train_steps

    def _save_after_failure(self, progress: Progress) -> None:
        """Save what was trained since the last checkpoint; the failure is told either way."""
        if self._parts.trainer is None or progress.train_steps <= self._saved_steps:
            return
        num_consumed = self._parts.rollouts.num_consumed
        self._parts.put_back_batch()
        if self._parts.rollouts.num_consumed < num_consumed:
            progress.explore_steps -= 1  # its batch of groups is taken again
        try:
            self.save(progress)
        except (CheckpointError, OSError) as error:  # of the disk: it must not hide the failure
            logger.warning("%s", error)

    def _held_by(self, progress: Progress) -> object:
        """Return what a whole checkpoint is written for: the weights, and the rows that wait."""
        slots = self._parts.rollouts.slots.values()
        left = [(one.number, one.left) for one in slots if one.left]
        return progress.train_steps, progress.explore_steps, left
