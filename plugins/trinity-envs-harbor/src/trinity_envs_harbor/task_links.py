"""Which links of a task's folder this machine follows: those into the folder of tasks.

A data set may share its tests. What lies elsewhere is not read: a sandbox would show it to the
model, and a file of ``/proc`` may block.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trinity_envs_harbor.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["link_problems", "linked_folders", "roots_of", "stays_in"]

_FOLDERS = ("environment", "tests", "solution", "workdir")
_FILES = (
    *("task.toml", "instruction.md", "tests/test.sh", "solution/solve.sh", "workdir/setup.sh"),
    *(f"environment/{name}" for name in ("Dockerfile", ".dockerignore", "Dockerfile.dockerignore")),
)
_OF_STEPS = ("steps", "steps/*")
_LINKED = (*_OF_STEPS, *_FOLDERS, *(f"steps/*/{name}" for name in _FOLDERS))
_READ = (*_LINKED, *_FILES, *(f"steps/*/{name}" for name in _FILES))


def roots_of(folder: Path, tasks: Path | None = None) -> tuple[Path, ...]:
    """Return the folders that links of a task may lead into.

    Args:
        folder: of the task.
        tasks: the folder of tasks that the user gave; None, or ``/``: the task's alone.
    """
    own, given = (Path(os.path.realpath(one or folder)) for one in (folder, tasks))
    return (own,) if given == Path("/") else (own, given)


def stays_in(path: Path, roots: tuple[Path, ...]) -> bool:
    """Return whether a path, its links followed, lies in one of these folders."""
    found = Path(os.path.realpath(path))
    return any(found.is_relative_to(root) for root in roots)


def linked_folders(folder: Path, roots: tuple[Path, ...]) -> list[Path]:
    """Return the links of a task's folder that stand for folders and stay in these folders."""
    return [one for one in _links(folder, _LINKED) if stays_in(one, roots)]


def link_problems(folder: Path, tasks: Path | None = None) -> list[Problem]:
    """Return the links that would be followed out of the folder of tasks; see :func:`roots_of`."""
    roots = roots_of(folder, tasks)
    remedy = (
        "Copy that into the task; or give the folder that holds both: trinity harbor rows FOLDER "
        "FILE."
    )
    return [
        Problem(
            file=one,
            what=f"it is a link to {os.path.realpath(one)}, outside of {roots[-1]}. {remedy}",
        )
        for one in _links(folder, _READ)
        if not stays_in(one, roots)
    ]


def _links(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    return (one for name in names for one in sorted(folder.glob(name)) if one.is_symlink())
