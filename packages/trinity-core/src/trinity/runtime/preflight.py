"""What is said, set and asked before anything starts."""

from __future__ import annotations

import os
import platform
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from trinity.common.config.preparation import run_manager
from trinity.errors import ConfigError
from trinity.extend import get_manager, set_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.common.config import Config
    from trinity.extend import PluginManager
    from trinity.runtime.rundir import RunDir

__all__ = ["header_lines", "plugins_of", "set_threads"]


def set_threads() -> None:
    """Let waiting threads sleep, unless the user has said otherwise.

    It must stand in the environment before torch is imported: threads that spin while they wait
    make two busy processes on one machine many times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@contextmanager
def plugins_of(config: Config) -> Iterator[PluginManager]:
    """Use the plugins that the configuration's ``plugins`` section chooses, while it runs.

    Raises:
        PluginError: another distribution owns the import package ``trinity`` too.
        ConfigError: ``plugins.require`` does not hold.
    """
    before, manager = get_manager(), run_manager(config)
    manager.check_import_package()
    missing = manager.missing_requirements(config.plugins.require)
    if missing:
        raise ConfigError("plugins.require does not hold: " + "; ".join(missing))
    set_manager(manager)
    try:
        yield manager
    finally:
        set_manager(before)


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
