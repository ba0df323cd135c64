"""What the files of a checkpoint held when it was written.

``manifest.json`` has the size and the SHA-256 of each file but ``state.json``, which has a checksum
of its own as it is written anew where only the progress changed. It is written last: a folder that
has one was complete.
"""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import CheckpointError
from trinity.runtime.record.records import DamagedError, Manifest, read_record, write_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config

FILE_NAME = "manifest.json"
STATE = "state.json"
#: what file systems over a network answer that sync files, and no folder
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES})


def write_manifest(folder: Path) -> None:
    """Write down each file, once it is on the disk."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in {FILE_NAME, STATE}:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                files[name] = {"size": file.tell(), "digest": digest}
                os.fsync(file.fileno())
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
    write_record(folder / FILE_NAME, {"files": files})
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
    if not os.path.lexists(folder / FILE_NAME):
        return False
    remedy = f"Remove {FILE_NAME} to use the checkpoint as it is."
    manifest = read_record(folder / FILE_NAME, Manifest, remedy=remedy)
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
    owners = [p for p in folder.parents if (p / STATE).exists() and (p / FILE_NAME).exists()]
    for owner in owners:
        try:
            check_files(owner, within=f"{folder.relative_to(owner)}/")
        except DamagedError as error:
            raise DamagedError(
                f"{str(error).rstrip('.')}. Put it back from a copy, or name another model. If you "
                f"changed it yourself, remove {owner / FILE_NAME}."
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
