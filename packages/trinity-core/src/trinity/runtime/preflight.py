"""What is said and set before anything starts."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import Config
    from trinity.extend import PluginManager
    from trinity.runtime.rundir import RunDir

__all__ = ["header_lines", "set_threads"]


def set_threads() -> None:
    """Let waiting threads sleep, unless the user has said otherwise.

    It must stand in the environment before torch is imported: threads that spin while they wait
    make two busy processes on one machine many times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def header_lines(stages: Sequence[Config], *, rundir: RunDir, manager: PluginManager) -> list[str]:
    """Return the lines that a run begins with: versions, plugins, what follows the machine."""
    lines = [
        f"trinity-core {version('trinity-core')}, python {platform.python_version()}, "
        f"torch {version('torch')}",
        manager.header(),
        f"run directory {rundir.path}",
    ]
    notes: dict[str, None] = {}
    for stage in stages:
        notes.update(dict.fromkeys(stage.notes))
    return lines + [f"note: {note}" for note in notes]
