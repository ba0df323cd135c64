"""What a checkpoint holds: the state of every worker, the rows that wait, the weights."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.explorer.rollout_buffer import has_ended, names_of_ended
from trinity.runtime.record.checkpoint import CheckpointStore, write_weights
from trinity.runtime.record.records import write_record
from trinity.runtime.record.rundir import EXPLORER_STATE
from trinity.runtime.storage_state import state_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trinity.common.experience import Experience
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.progress import Progress


class CheckpointWriter:
    """Writes the checkpoints of a stage."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def save(self, progress: Progress, explorer_state: dict[str, Any]) -> None:
        """Write a checkpoint, or where nothing is trained the explorer's place."""
        if self._parts.trainer is None:
            self.save_progress(progress, explorer_state)
            return
        saved = self._store(progress).save(
            progress.train_steps,
            state=self._state(progress, explorer_state),
            experiences=self._waiting_experiences(explorer_state),
            write_actor=partial(self._write_weights, progress),
        )
        if self._parts.storage is not None:
            self._parts.storage.forget(self._parts.checkpoints.all()[0].step)
        self._parts.manager.call("trinity_checkpoint_saved", path=saved.path)

    def save_progress(self, progress: Progress, explorer_state: dict[str, Any]) -> None:
        """Note how far the run is, where weights and waiting experiences are saved already."""
        state = self._state(progress, explorer_state)
        if self._parts.trainer is not None:
            self._store(progress).restate(progress.train_steps, state=state)
            return
        write_record(self._parts.rundir.path / EXPLORER_STATE, state)

    def _store(self, progress: Progress) -> CheckpointStore:
        return CheckpointStore(
            self._parts.rundir.path,
            num_kept=self._parts.config.trainer.max_checkpoints_to_keep,
            best=[step for _, step in progress.best],
        )

    def _state(self, progress: Progress, explorer_state: dict[str, Any]) -> dict[str, Any]:
        for observer in self._parts.observers:
            observer.flush()
        is_behind = self._engines_are_behind(progress)
        return {
            "mode": self._parts.config.mode,
            "progress": progress.state_dict(),
            "explorer": explorer_state,
            "strategy": self._parts.strategy.state_dict() if self._parts.strategy else {},
            "storage": self._storage_state(progress, explorer_state),
            "files": self._parts.files.marks() | explorer_state.get("files", {}),
            "plugins": self._parts.manager.describe(),
            "digest": self._parts.manager.digest(),
            **({"engines": {"version": progress.weights_version}} if is_behind else {}),
        }

    def _storage_state(
        self, progress: Progress, explorer_state: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the storage's state; where it keeps a ledger, with the place of the checkpoint."""
        state = state_of(self._parts.storage) if self._parts.storage is not None else {}
        place: dict[str, Any] = {"trained": progress.train_steps}
        if self._parts.groups is not None:
            place["waiting"] = names_of_ended(explorer_state["rollouts"])
        elif self._parts.explorer is not None and self._parts.is_in_order:
            place["waiting"] = self._parts.rollouts.num_rows()
        state |= {name: value for name, value in place.items() if name in state}
        return self._parts.storage.seal(state) if self._parts.storage is not None else state

    def _write_weights(self, progress: Progress, actor: Path) -> None:
        assert self._parts.trainer is not None
        self._parts.trainer.save(actor)
        if not self._engines_are_behind(progress) or not progress.weights_version:
            return
        if self._parts.engine_weights is not None:
            self._parts.engine_weights.save(actor.parent)
        else:
            assert self._parts.restored is not None
            assert self._parts.restored.snapshot is not None
            write_weights(self._parts.restored.snapshot, actor.parent)

    def _engines_are_behind(self, progress: Progress) -> bool:
        """Return whether explore steps to come may need older weights than the trainer's.

        In turns they do only where the run goes on from a checkpoint that was written beside one.
        """
        version = progress.weights_version
        is_restored = self._parts.restored is not None and self._parts.restored.version == version
        is_ahead = self._parts.policy.in_rounds and not self._parts.in_turns
        return version < progress.train_steps and (is_ahead or is_restored)

    def _waiting_experiences(self, explorer_state: Mapping[str, Any]) -> list[Experience]:
        """Return what waits, without what a step wrote that has not ended or that failed.

        Of groups in flight: without those that had not ended when the explorer told where it is.
        """
        waiting = list(self._parts.storage.waiting()) if self._parts.storage is not None else []
        if self._parts.groups is not None:
            return [row for row in waiting if has_ended(row.eid, explorer_state["rollouts"])]
        is_fed = self._parts.explorer is not None and self._parts.is_in_order
        return waiting[: self._parts.rollouts.num_rows()] if is_fed else waiting
