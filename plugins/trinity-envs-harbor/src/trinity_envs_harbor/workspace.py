"""Where commands of a rollout run and files lie: what the contract of Harbor needs of it."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from trinity_sandbox.disk import bytes_in

from trinity_envs_harbor.links import leads_out, warn_links
from trinity_envs_harbor.safe_files import (
    MOST_FOLDERS,
    copied_inside,
    empty_folder,
    opened_up,
    plain_parts,
    read_inside,
    size_with_holes,
    written_inside,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from trinity_sandbox.base import CommandResult, Sandbox, Session

    from trinity_envs_harbor.prepared import Prepared

__all__ = ["Given", "SandboxWorkspace", "Workspace", "warn_left_out"]

logger = logging.getLogger("trinity.harbor")


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What a command has beside its words.

    Attributes:
        env: further variables.
        user: a name or number of the image; "": its own. A sandbox has one user.
        binds: further files that it reads: on the host, and inside. Containers have none.
        shown: further folders of a sandbox: their paths, and the parts of the workspace.
        is_disk_free: what is there already does not count for the limit of disk.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    binds: Sequence[tuple[Path, str]] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    is_disk_free: bool = False


class Workspace(Protocol):
    """A copy of a task's files, in which commands run one after the other."""

    @property
    def workdir(self) -> str:
        """Return the working directory."""

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        given: Given,
    ) -> CommandResult:
        """Run one command.

        Args:
            command: a program and its arguments.
            timeout_s: until it is ended.
            given: what it has beside its words.

        Raises:
            EnvError: it could not be started.
        """

    def end_processes(self) -> None:
        """End what earlier commands left running."""

    def empty(self, path: str) -> None:
        """Make an empty folder, in place of what stands there, that each user may write."""

    def copy_in(self, source: Path, path: str) -> None:
        """Copy what a folder of the host holds over a folder; its ``*.sh`` are programs."""

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of what stands there."""

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None: there is none.

        Raises:
            EnvError: it is no file, or has more than 1 MB.
        """

    def another(self) -> AbstractContextManager[Workspace]:
        """Give a new one of the same task, which is stopped with this one."""

    def hand_over(self, paths: Sequence[str], other: Workspace) -> None:
        """Copy files and folders that are there to another one, as much as the task's storage.

        Links that lead out of what is copied are left out.
        """

    def stop(self) -> None:
        """End the command that runs, and each one that comes; from any thread."""


class SandboxWorkspace:
    """Folders of this machine that a sandbox shows at the paths of the task.

    Args:
        prepared: what it begins with.
        sandbox: where commands run.
        session: over a copy of the files.
    """

    def __init__(self, prepared: Prepared, sandbox: Sandbox, session: Session) -> None:
        self._prepared, self._sandbox, self._session = prepared, sandbox, session

    @property
    def workdir(self) -> str:
        """Return the working directory."""
        return self._session.workdir

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        given: Given,
    ) -> CommandResult:
        """Run one command, and end what it started."""
        prepared, limits = self._prepared, self._prepared.limits(timeout_s)
        taken = bytes_in(self._session.folder) if given.is_disk_free else 0
        session = replace(
            self._session,
            limits=replace(limits, disk_bytes=limits.disk_bytes + taken),
            binds=(*prepared.binds, *given.binds),
            env={**prepared.env, **given.env},
            places={**prepared.places, **given.shown},
        )
        return session.run(command)

    def end_processes(self) -> None:
        """Do nothing: none outlives its command."""

    def empty(self, path: str) -> None:
        """Make an empty folder."""
        empty_folder(self._session.folder, path)

    def copy_in(self, source: Path, path: str) -> None:
        """Copy what a folder of the host holds."""
        copied_inside(source.resolve(), self._session.folder, path)
        for script in source.glob("*.sh"):
            copy = self._session.folder.joinpath(*plain_parts(path), script.name)
            if not copy.is_symlink():
                copy.chmod(0o755)

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        written_inside(self._session.folder, path, text)

    def read(self, path: str) -> bytes | None:
        """Return what a file holds."""
        return read_inside(self._session.folder, path)

    @contextmanager
    def another(self) -> Iterator[SandboxWorkspace]:
        """Give a new one of the same task."""
        opened_up(self._session.folder)
        with self._prepared.workspace(self._sandbox, stopped=self._session.stopped) as other:
            yield other

    def hand_over(self, paths: Sequence[str], other: Workspace) -> None:
        """Copy files and folders that are there; links are copied as links."""
        assert isinstance(other, SandboxWorkspace)
        left: float = self._prepared.task.storage_mb << 20
        out: list[str] = []
        for path in paths:
            source = _unlinked(self._session.folder, path)
            if source is None:
                continue
            left -= size_with_holes(source)
            if left < 0:  # files with holes, or with many names, take little before they are copied
                warn_left_out(self._prepared.task.name, path, self._prepared.task.storage_mb)
                break
            copied_inside(source, other._session.folder, path, keeps=self._keeps(path, out))
        warn_links(self._prepared.task.name, out)

    def _keeps(self, artifact: str, out: list[str]) -> Callable[[Path], bool]:
        """Return what says whether a link is handed over; the paths of others are noted."""

        def keeps(link: Path) -> bool:
            at = f"/{link.relative_to(self._session.folder)}"
            if not leads_out(at, os.readlink(link), artifact):
                return True
            out.append(at)
            return False

        return keeps

    def stop(self) -> None:
        """End the command that runs."""
        self._session.stop()


def warn_left_out(name: str, path: str, most_mb: int) -> None:
    """Say that an artifact, and those after it, are left out.

    What the agent did is for the verifier to judge, and no failure of the environment.
    """
    told = (
        "%s: %s is left out, as the artifacts are larger than %d MB, or have more than %d folders "
        "one in the other."
    )
    logger.warning(told, name, path, most_mb, MOST_FOLDERS)


def _unlinked(root: Path, path: str) -> Path | None:
    """Return what stands at a path, if it is there and no folder above it is a link."""
    found = root
    for part in plain_parts(path):
        if found.is_symlink():
            return None
        found /= part
    return found if found.exists() or found.is_symlink() else None
