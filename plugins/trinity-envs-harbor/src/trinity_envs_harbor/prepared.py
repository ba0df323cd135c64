"""The files that each rollout of a task begins with, made once in a process."""

from __future__ import annotations

import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import BadTaskError

from trinity_envs_harbor.container_workspace import PreparedImage
from trinity_envs_harbor.containers import ContainerClient
from trinity_envs_harbor.file_build import FileBuild, limits_of
from trinity_envs_harbor.layout import (
    HOME,
    image_problems,
    layout_problems,
    places_of,
    python_bind,
)
from trinity_envs_harbor.reading import read_task
from trinity_envs_harbor.safe_files import copied_inside
from trinity_envs_harbor.task import digest_of
from trinity_envs_harbor.workspace import SandboxWorkspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity_sandbox.base import Limits, Sandbox

    from trinity_envs_harbor.problems import Problem
    from trinity_envs_harbor.task import HarborTask

__all__ = ["Prepared", "forget_prepared", "prepared", "problems_of"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ETC = {
    "passwd": f"root:x:0:0:root:{HOME}:/bin/sh\nagent:x:65534:65534:agent:{HOME}:/bin/sh\n",
    "group": "root:x:0:\nagent:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A task's files and its commands' surroundings.

    Attributes:
        digest: of the task's folder.
        files: holds a folder for each place.
        binds, env, places, workdir: see ``trinity_sandbox.base.Session``.
    """

    task: HarborTask
    digest: str
    files: Path
    binds: tuple[tuple[Path, str], ...]
    env: Mapping[str, str]
    places: Mapping[str, str]
    workdir: str

    def limits(self, timeout_s: float) -> Limits:
        """Return the limits of one command that may take so long."""
        return limits_of(self.task, timeout_s)

    @contextmanager
    def workspace(
        self, sandbox: Sandbox | ContainerClient, *, stopped: threading.Event | None = None
    ) -> Iterator[SandboxWorkspace]:
        """Give a copy of the files; it is deleted at the end.

        Raises:
            ConfigError: the sandbox cannot show a task's paths.
        """
        assert not isinstance(sandbox, ContainerClient)
        with sandbox.open(places=self.places, workdir=self.workdir) as session:
            copied_inside(self.files, session.folder, "/")
            held = session if stopped is None else replace(session, stopped=stopped)
            yield SandboxWorkspace(self, sandbox, held)


@dataclass(kw_only=True)
class _Made:
    """What this process has prepared, and the locks of what it is preparing."""

    by_key: dict[tuple[str, ...], Prepared | PreparedImage] = field(default_factory=dict)
    locks: dict[tuple[str, ...], threading.Lock] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    folder: tempfile.TemporaryDirectory[str] | None = None  # deleted when the process ends


_made = _Made()


def problems_of(
    folder: Path,
    images: Mapping[str, str],
    *,
    tasks: Path | None = None,
    in_container: bool = False,
) -> tuple[HarborTask | None, list[Problem]]:
    """Return a task and all that keeps it from running here, notes included."""
    task, problems = read_task(folder, tasks=tasks, in_container=in_container)
    if task is not None and not in_container:
        problems += [*image_problems(task, images), *layout_problems(task)]
    return task, problems


def prepared(
    folder: Path,
    *,
    sandbox: Sandbox | ContainerClient,
    images: Mapping[str, str],
    tasks: Path | None = None,
    digest: str = "",
    allow_network: bool = False,
) -> Prepared | PreparedImage:
    """Return a task's files, made by the instructions of its Dockerfile, or its image.

    Args:
        folder: of the task.
        sandbox: where its commands run.
        images: what base images stand for, where they do not run in containers.
        tasks: the folder of tasks that the user gave, in which links of the task may lead.
        digest: that the task must have; "": any.
        allow_network: containers of tasks that ask for it reach the network.

    Raises:
        BadTaskError: it asks for what is not there, each problem with its file and line; or it has
            another digest.
        EnvError: an instruction failed.
    """
    found = digest_of(folder, tasks)
    key = (str(folder.resolve()), found, sandbox.name, str(allow_network))
    with _made.lock:
        lock = _made.locks.setdefault(key, threading.Lock())
    with lock:
        known, in_container = _made.by_key.get(key), isinstance(sandbox, ContainerClient)
        task = known.task if known else _sound(folder, images, tasks, in_container=in_container)
        if digest not in {"", found}:  # before a build, which may send files elsewhere
            raise BadTaskError(
                f"{folder} has changed since the row was written, or an earlier version of "
                f"Trinity wrote the row. Write the rows again: trinity harbor rows FOLDER FILE"
            )
        if known is None:
            if isinstance(sandbox, ContainerClient):
                image = sandbox.image_of(task, tasks)
                known = PreparedImage(
                    task=task,
                    digest=found,
                    image=image,
                    client=sandbox,
                    user=sandbox.user_of(image),
                    has_network=allow_network and task.asks_for_network,
                )
            else:
                known = _prepare(task, found, sandbox=sandbox)
            _made.by_key[key] = known
        return known


def forget_prepared() -> None:
    """Delete what was prepared in this process."""
    with _made.lock:
        folder, _made.folder = _made.folder, None
        _made.by_key.clear()
    if folder is not None:
        folder.cleanup()


def _sound(
    folder: Path, images: Mapping[str, str], tasks: Path | None, *, in_container: bool
) -> HarborTask:
    task, problems = problems_of(folder, images, tasks=tasks, in_container=in_container)
    serious = [str(one) for one in problems if not one.is_note]
    if task is None or serious:
        raise BadTaskError("\n".join(serious))
    return task


def _prepare(task: HarborTask, digest: str, *, sandbox: Sandbox) -> Prepared:
    with _made.lock:
        if _made.folder is None:
            _made.folder = tempfile.TemporaryDirectory(
                prefix="trinity-harbor-", ignore_cleanup_errors=True
            )
        files = Path(tempfile.mkdtemp(dir=_made.folder.name))
    etc = files / "etc"
    etc.mkdir()
    for name, text in _ETC.items():
        (etc / name).write_text(text)
    places = places_of(task)
    python, programs = python_bind(places)
    binds = (*python, *((etc / name, f"/etc/{name}") for name in _ETC))
    build = FileBuild(
        task=task,
        sandbox=sandbox,
        files=files / "root",
        binds=binds,
        places=places,
        env={"PATH": f"{_PATH}:{programs}", "HOME": HOME, "LANG": "C.UTF-8"},
    )
    build.make()
    return Prepared(
        task=task,
        digest=digest,
        files=build.files,
        binds=binds,
        env={**build.env, **task.env},
        places=places,
        workdir=task.workdir or build.workdir,
    )
