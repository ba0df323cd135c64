"""Write and read checkpoints, each complete or absent.

global_step_<N>/
    state.json             explorer, trainer, buffer positions and the plugin set
    actor/huggingface/     the model and tokenizer, as transformers reads them
    actor/trainer.pt       optimizer, scheduler, random state
    actor/shards/          what each rank held, where that was too large for one of them
    engine/                the engines' weights, where they are older than the model's
    experiences.jsonl      what the buffer held and nobody had read
    manifest.json          size and digest of each of these files but state.json

``state.json`` has a checksum of its own: it is written anew where only the progress changed. The
manifest is written last: a folder that has one was complete.

A checkpoint is written under another name and renamed when all of it is on the disk. One that is
not as its manifest says is not used: the run goes back to the newest that is.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from trinity.common.experience import Experience
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import CheckpointError, WorkerLostError
from trinity.runtime.record.progress import read_progress
from trinity.runtime.record.records import (
    DamagedError,
    Manifest,
    StateRecord,
    read_record,
    write_atomically,
    write_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from trinity.common.config import Config

FROM_MODEL = (
    "To train its model in a new run, set another name, and set model.model_path to the "
    "checkpoint's actor/huggingface. If it has adapters of several agents, set each path of "
    "model.lora_configs to a folder in actor/adapter instead."
)
MANIFEST = "manifest.json"
STATE = "state.json"
#: what file systems over a network answer that sync files, and no folder
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES})
ENGINE = "engine"
_ENGINE_WEIGHTS = "weights.safetensors"
LATEST = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"global_step_(\d+)$")
_DOOMED, _DAMAGED = ".doomed_", ".damaged"
_SCRATCH = re.compile(r"^\.(global_step_\d+)\.\d+(\.old)?$")


def write_manifest(folder: Path) -> None:
    """Write down each file, once it is on the disk."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in {MANIFEST, STATE}:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                files[name] = {"size": file.tell(), "digest": digest}
                os.fsync(file.fileno())
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
    write_record(folder / MANIFEST, {"files": files})
    sync_folder(folder)


def check_files(folder: Path, *, within: str = "") -> bool:
    """Return whether a checkpoint has a manifest, once its files are found to be as they were.

    Args:
        folder: the checkpoint.
        within: only the files of this folder in it, such as ``actor/huggingface``.

    Raises:
        DamagedError: a file is missing, or is not what was written.
        CheckpointError: the system does not let one be read.
    """
    if not os.path.lexists(folder / MANIFEST):
        return False
    remedy = f"Remove {MANIFEST} to use the checkpoint as it is."
    manifest = read_record(folder / MANIFEST, Manifest, remedy=remedy)
    files: Mapping[str, Mapping[str, object]] = manifest["files"]
    for name, mark in files.items():
        if name.startswith(within):
            problem = _problem(folder / name, mark)
            if problem:
                raise DamagedError(f"{folder / name} {problem}")
    return True


def check_models(config: Config) -> None:
    """Check the models that a stage loads, where they are part of a checkpoint of ours.

    Raises:
        DamagedError: a file of one is missing, or is not what was written.
        CheckpointError: the system does not let one be read.
    """
    paths = [config.model.model_path, config.model.critic_model_path]
    paths.append(config.explorer.rollout_model.model_path)
    paths += [adapter.path for adapter in config.model.lora_configs or () if adapter.path]
    for path in dict.fromkeys(filter(None, paths)):
        check_model(Path(path))


def check_model(folder: Path) -> None:
    """Check the model of a checkpoint; a folder that is none's is not looked at.

    Raises:
        DamagedError: a file in it is missing, or is not what was written.
        CheckpointError: the system does not let one be read.
    """
    folder = folder.absolute()
    owners = [p for p in folder.parents if (p / STATE).exists() and (p / MANIFEST).exists()]
    for owner in owners:
        try:
            check_files(owner, within=f"{folder.relative_to(owner)}/")
        except DamagedError as error:
            raise DamagedError(
                f"{str(error).rstrip('.')}. Put it back from a copy, or name another model. If you "
                f"changed it yourself, remove {owner / MANIFEST}."
            ) from error


def _problem(path: Path, mark: Mapping[str, object]) -> str:
    """Return what is wrong with a file, to be put after its name; empty: nothing is."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != mark["size"]:
                return f"is damaged: it has {size} bytes, and had {mark['size']}"
            if hashlib.file_digest(file, "sha256").hexdigest() != mark["digest"]:
                return "is damaged: its bytes are not those that were written"
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except IsADirectoryError:
        return "is a folder, and was a file"
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror or error}. Make it readable, then run the "
            f"same command."
        ) from error
    return ""


def sync_folder(path: Path) -> None:
    """Put on the disk which files a folder has."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def write_weights(snapshot: WeightSnapshot, checkpoint: Path) -> None:
    """Write the tensors as the engines got them, by their names, into a checkpoint's folder."""
    from safetensors.torch import save_file

    folder = checkpoint / ENGINE
    folder.mkdir()
    save_file(
        {name: one.contiguous() for name, one in snapshot.tensors.items()}, folder / _ENGINE_WEIGHTS
    )


def read_weights(checkpoint: Path, *, version: int) -> WeightSnapshot:
    """Return what :func:`write_weights` wrote.

    Raises:
        OSError: it is not there.
    """
    from safetensors.torch import load_file

    tensors = load_file(checkpoint / ENGINE / _ENGINE_WEIGHTS)
    return WeightSnapshot(version=WeightVersion(version), tensors=tensors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """One complete checkpoint on disk."""

    step: int  # optimizer steps
    path: Path

    @property
    def actor(self) -> Path:
        return self.path / "actor"

    @property
    def huggingface(self) -> Path:
        return self.actor / "huggingface"

    def read_state(self) -> dict[str, Any]:
        """Return ``state.json`` (Any: json).

        Raises:
            CheckpointError: it cannot be read, or is of another step.
        """
        remedy = f"{self.path.name} cannot be used."
        state = read_record(self.path / "state.json", StateRecord, remedy=remedy)
        step = read_progress(state).train_steps
        if step != self.step:
            raise DamagedError(f"{self.path / 'state.json'} is of step {step}. {remedy}")
        return state

    def read_experiences(self) -> list[Experience]:
        """Return the experiences that waited in the buffer.

        Raises:
            CheckpointError: they cannot be read.
        """
        path = self.path / "experiences.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [Experience.from_dict(json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedError(f"{path} is damaged or missing: {error}") from error

    def check(self) -> bool:
        """Return whether there is a manifest that told that all files are as they were.

        Without one, what can be told by reading is.

        Raises:
            DamagedError: a file is not as it was.
            CheckpointError: the system does not let one be read.
        """
        has_manifest = check_files(self.path)
        self.read_state()
        if not has_manifest:
            self.read_experiences()
        return has_manifest


class CheckpointStore:
    """The checkpoints of one run directory."""

    def __init__(self, directory: Path, *, num_kept: int = 0, best: Collection[int] = ()) -> None:
        self._directory = directory
        self._num_kept = num_kept  # 0: all
        self._best = best  # steps that are kept however old they are

    def all(self) -> list[Checkpoint]:
        """Return the complete checkpoints, oldest first; one of them may be damaged."""
        found = []
        for path in self._directory.glob("global_step_*"):
            match = _NAME.search(path.name)
            marks = (path / "state.json", path / MANIFEST)  # a folder without both is not ours
            if match and any(os.path.lexists(mark) for mark in marks):
                found.append(Checkpoint(step=int(match.group(1)), path=path))
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def recover(self) -> None:
        """Put a checkpoint in place that was complete when a kill came before its renaming.

        What else a kill left is removed.

        Only who holds the run directory may call this.

        Raises:
            CheckpointError: the folder does not let that be done.
        """
        for path in sorted(self._directory.glob(".global_step_*")):  # "x.old" after "x"
            match = _SCRATCH.search(path.name)
            if match is None or not _is_complete(path):
                continue
            target = self._directory / match.group(1)
            if not target.exists():
                path.rename(target)
        self._remove_leftovers()
        latest = self.latest()
        if latest is not None:
            write_atomically(self._directory / LATEST, f"{latest.step}\n")

    def newest_whole(self, *, say: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest checkpoint whose files are as they were; None: there is none at all.

        Damaged ones that are newer are told and set aside, so that nothing takes them for good.

        Raises:
            CheckpointError: there are some, and all are damaged.
        """
        damaged: list[tuple[Checkpoint, DamagedError]] = []
        for checkpoint in reversed(self.all()):
            try:
                has_manifest = checkpoint.check()
            except DamagedError as error:
                damaged.append((checkpoint, error))
                continue
            self._set_aside(damaged, whole=checkpoint, say=say)
            if not has_manifest:
                say(
                    f"{checkpoint.path} has no {MANIFEST}, which would tell whether its files "
                    f"are whole: they are taken as they are"
                )
            return checkpoint
        if damaged:
            raise CheckpointError(_none_is_whole(damaged))
        return None

    def _set_aside(
        self,
        damaged: Sequence[tuple[Checkpoint, DamagedError]],
        *,
        whole: Checkpoint,
        say: Callable[[str], None],
    ) -> None:
        for checkpoint, error in damaged:
            aside = checkpoint.path.with_name(f"{checkpoint.path.name}{_DAMAGED}")
            shutil.rmtree(aside, ignore_errors=True)
            checkpoint.path.rename(aside)
            say(
                f"{str(error).rstrip('.')}: the run goes back to {whole.path.name}, and the "
                f"damaged checkpoint is kept as {aside.name}"
            )
        if damaged:
            write_atomically(self._directory / LATEST, f"{whole.step}\n")

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
            sync_folder(self._directory)
            write_atomically(self._directory / LATEST, f"{step}\n")
        except WorkerLostError:
            raise  # a RuntimeError too
        except (OSError, RuntimeError, SafetensorError) as error:  # torch raises RuntimeError
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {target}: {reason}. "
                f"Make room or set checkpoint_root_dir to another disk, then run the same command: "
                f"it continues from the last complete checkpoint."
            ) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._prune()
        return Checkpoint(step=step, path=target)

    def restate(self, step: int, *, state: dict[str, Any]) -> None:
        """Replace the state of a step's checkpoint; remove those that are not among the best now.

        Raises:
            OSError: it cannot be written; the checkpoint is as before.
        """
        write_record(self._directory / f"global_step_{step}" / "state.json", state)
        self._prune()

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
        write_record(folder / "state.json", state)
        write_manifest(folder)

    def _prune(self) -> None:
        self._remove_leftovers()
        if self._num_kept > 0:
            for old in self.all()[: -self._num_kept]:
                if old.step not in self._best:
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


def _is_complete(scratch: Path) -> bool:
    """Return whether all of a checkpoint was written, before or since there are manifests."""
    older = scratch.with_name(f"{scratch.name}.old")  # is moved aside for one that is complete
    is_told = scratch.suffix == ".old" or older.exists()
    return (scratch / MANIFEST).exists() or (is_told and (scratch / "state.json").exists())


def _none_is_whole(damaged: Sequence[tuple[Checkpoint, DamagedError]]) -> str:
    checkpoint, error = damaged[0]
    others = f", and none of the {len(damaged) - 1} before it is whole" if damaged[1:] else ""
    return (
        f"{str(error).rstrip('.')}{others}. Put the file back from a copy. Or choose by hand: the "
        f"run goes on from the newest global_step folder, so remove or rename "
        f"{checkpoint.path.name}; without any it begins anew."
    )
