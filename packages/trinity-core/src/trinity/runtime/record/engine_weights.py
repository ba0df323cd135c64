"""The weights that the engines have, where a checkpoint's model is newer.

A checkpoint that is written while the explorer is ahead holds them in ``engine/``: the explore
steps that had not ended are made again, with the weights that they began with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.ports import WeightSnapshot, WeightVersion

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "engine"
_FILE = "weights.safetensors"


def write_weights(snapshot: WeightSnapshot, checkpoint: Path) -> None:
    """Write the tensors as the engines got them, by their names, into a checkpoint's folder."""
    from safetensors.torch import save_file

    folder = checkpoint / FOLDER
    folder.mkdir()
    save_file({name: one.contiguous() for name, one in snapshot.tensors.items()}, folder / _FILE)


def read_weights(checkpoint: Path, *, version: int) -> WeightSnapshot:
    """Return what :func:`write_weights` wrote.

    Raises:
        OSError: it is not there.
    """
    from safetensors.torch import load_file

    tensors = load_file(checkpoint / FOLDER / _FILE)
    return WeightSnapshot(version=WeightVersion(version), tensors=tensors)
