"""The runs of a sweep, as the file in its folder names them (``trinity sweep``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "sweep.json"


def runs_of_sweep(folder: Path) -> list[Path]:
    """Return the run directories of a sweep, in order; empty: the folder is of no sweep.

    Raises:
        ConfigError: its file is damaged.
    """
    file = folder / _FILE
    if not file.exists():
        return []
    try:
        runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
        return [folder.absolute().parent / one["directory"] for one in runs]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{file} is damaged: {error}. Name a run directory beside {folder} instead."
        ) from error
