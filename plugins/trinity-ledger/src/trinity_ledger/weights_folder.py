"""Weights that travel as files: of each version one folder, complete or absent.

    weights/v12/model.safetensors        the trainer writes .v12.<pid>, and renames it
    weights/v13/model.safetensors        the newest two are kept

What a folder holds is known by its digest: a version that was made again after a resume is another.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from typing import TYPE_CHECKING

from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

NUM_KEPT = 2
_FILE = "model.safetensors"
_NAME = re.compile(r"^v(\d+)$")


class WeightsFolder:
    """The weights of one run, for who reads them on the same disk.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, snapshot: WeightSnapshot) -> str:
        """Write the weights, in place of others of their version and newer; return their digest.

        Raises:
            CheckpointError: the disk is full or cannot be written; what was there stays.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        target = self._path / f"v{snapshot.version}"
        scratch = self._path / f".v{snapshot.version}.{os.getpid()}"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            _remove(list(self._path.glob(".v*")))  # broken off by a kill
            scratch.mkdir()
            tensors = {name: one.cpu().contiguous() for name, one in snapshot.tensors.items()}
            save_file(_without_shared_memory(tensors), scratch / _FILE)
            digest = _digest(scratch / _FILE)
            _remove([path for version, path in self._all() if version >= snapshot.version])
            scratch.rename(target)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise CheckpointError(
                f"the weights of policy version {snapshot.version} cannot be written to "
                f"{self._path}: {getattr(error, 'strerror', None) or error}. Free space there, "
                f"then run the same command; it continues from the last checkpoint."
            ) from error
        _remove([path for _, path in self._all()[:-NUM_KEPT]])
        return digest

    def read(self, version: int, *, digest: str) -> WeightSnapshot | None:
        """Return the weights; None: newer ones, or others of that version, took their place."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        file = self._path / f"v{version}" / _FILE
        try:
            if _digest(file) != digest:
                return None
            tensors = load_file(file)
        except (OSError, SafetensorError):  # a disk of another machine fails in many ways
            return None
        return WeightSnapshot(version=WeightVersion(version), tensors=tensors)

    def _all(self) -> list[tuple[int, Path]]:
        """Return versions and their folders, the oldest first."""
        found = [(_NAME.match(path.name), path) for path in self._path.iterdir()]
        return sorted((int(match.group(1)), path) for match, path in found if match)


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _without_shared_memory(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors, those that are one in memory copied: a file holds each by itself."""
    seen: set[int] = set()
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        own[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return own


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
