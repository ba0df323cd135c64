"""Write and read checkpoints, each complete or absent.

global_step_<N>/
    state.json             explorer, trainer, buffer positions and the plugin set
    actor/huggingface/     the model and tokenizer, as transformers reads them
    actor/trainer.pt       optimizer, scheduler, random state
    experiences.jsonl      what the buffer held and nobody had read

It is written under another name and renamed when all of it is on the disk.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from trinity.common.experience import Experience
from trinity.errors import CheckpointError, RoomLostError
from trinity.runtime.record.rundir import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Checkpoint", "CheckpointStore"]

LATEST = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"global_step_(\d+)$")
_DOOMED = ".doomed_"
_SCRATCH = re.compile(r"^\.(global_step_\d+)\.\d+(\.old)?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """One complete checkpoint on disk."""

    step: int  # optimizer steps
    path: Path

    @property
    def actor(self) -> Path:
        """Return the folder of the trainer's state."""
        return self.path / "actor"

    @property
    def huggingface(self) -> Path:
        """Return the folder of the model in Hugging Face format."""
        return self.actor / "huggingface"

    def read_state(self) -> dict[str, Any]:
        """Return ``state.json`` (Any: json).

        Raises:
            CheckpointError: it cannot be read.
        """
        try:
            state: dict[str, Any] = json.loads((self.path / "state.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise _unreadable(self.path, error) from error
        return state

    def read_experiences(self) -> list[Experience]:
        """Return the experiences that waited in the buffer.

        Raises:
            CheckpointError: they cannot be read.
        """
        path = self.path / "experiences.jsonl"
        if not path.exists():
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [Experience.from_dict(json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError) as error:
            raise _unreadable(self.path, error) from error


class CheckpointStore:
    """The checkpoints of one run directory."""

    def __init__(self, directory: Path, *, num_kept: int = 0) -> None:
        self._directory = directory
        self._num_kept = num_kept  # 0: all

    def all(self) -> list[Checkpoint]:
        """Return the complete checkpoints, oldest first."""
        found = []
        for path in self._directory.glob("global_step_*"):
            match = _NAME.search(path.name)
            if match and (path / "state.json").exists():
                found.append(Checkpoint(step=int(match.group(1)), path=path))
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def recover(self) -> None:
        """Put a checkpoint in place that was complete when a kill came before its renaming.

        What else a kill left is removed.

        Only who holds the run directory may call this.
        """
        for path in sorted(self._directory.glob(".global_step_*")):  # "x.old" after "x"
            match = _SCRATCH.search(path.name)
            if match is None or not (path / "state.json").exists():
                continue
            target = self._directory / match.group(1)
            if not target.exists():
                path.rename(target)
        self._remove_leftovers()
        latest = self.latest()
        if latest is not None:
            write_atomically(self._directory / LATEST, f"{latest.step}\n")

    def latest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint; None: there is none."""
        checkpoints = self.all()
        return checkpoints[-1] if checkpoints else None

    def save(
        self,
        step: int,
        *,
        state: dict[str, Any],
        experiences: Sequence[Experience],
        write_actor: Callable[[Path], None],
    ) -> Checkpoint:
        """Write the checkpoint of a step, replacing one of the same step.

        Raises:
            CheckpointError: the disk is full or cannot be written; earlier checkpoints stay.
        """
        target = self._directory / f"global_step_{step}"
        scratch = self._directory / f".global_step_{step}.{os.getpid()}"
        try:
            self._write(scratch, state=state, experiences=experiences, write_actor=write_actor)
            self._replace(target, scratch)
            write_atomically(self._directory / LATEST, f"{step}\n")
        except RoomLostError:
            raise  # a RuntimeError too
        except (OSError, RuntimeError, SafetensorError) as error:  # torch raises RuntimeError
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {target}: {reason}. "
                f"Make room or set checkpoint_root_dir to another disk, then run the same command: "
                f"it goes on from the last complete checkpoint."
            ) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._prune()
        return Checkpoint(step=step, path=target)

    def restate(self, step: int, *, state: dict[str, Any]) -> None:
        """Replace the state of a step's checkpoint, whose other files stay as they are.

        Raises:
            CheckpointError: it cannot be written; the checkpoint is as before.
        """
        path = self._directory / f"global_step_{step}"
        try:
            write_atomically(path / "state.json", json.dumps(state, indent=2) + "\n")
        except OSError as error:
            raise CheckpointError(
                f"{path / 'state.json'} could not be written: {error.strerror or error}. "
                f"Make room, then run the same command: it goes on from this checkpoint."
            ) from error

    def _replace(self, target: Path, scratch: Path) -> None:
        """Put a whole checkpoint in place; the older one of its step is moved aside first."""
        aside = scratch.with_name(f"{scratch.name}.old")
        if target.exists():
            target.rename(aside)
        try:
            scratch.rename(target)
        except OSError:
            if aside.exists():
                aside.rename(target)
            raise
        if aside.exists():
            _remove(aside)

    def _write(
        self,
        folder: Path,
        *,
        state: dict[str, Any],
        experiences: Sequence[Experience],
        write_actor: Callable[[Path], None],
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "actor").mkdir(parents=True)
        write_actor(folder / "actor")
        with (folder / "experiences.jsonl").open("w", encoding="utf-8") as file:
            for experience in experiences:
                file.write(json.dumps(experience.to_dict()) + "\n")
        write_atomically(folder / "state.json", json.dumps(state, indent=2) + "\n")

    def _prune(self) -> None:
        self._remove_leftovers()
        if self._num_kept > 0:
            for old in self.all()[: -self._num_kept]:
                _remove(old.path)

    def _remove_leftovers(self) -> None:
        for pattern in (".global_step_*", f"{_DOOMED}*"):  # broken off by a kill
            for broken_off in self._directory.glob(pattern):
                shutil.rmtree(broken_off, ignore_errors=True)


def _remove(path: Path) -> None:
    """Remove a checkpoint; what a kill leaves of it is not taken for one."""
    doomed = path.with_name(f"{_DOOMED}{path.name}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} cannot be read: {error}. "
        f"Remove that folder to go on from the one before it."
    )
