"""The files that each rollout of a task begins with, made once in a process."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import BadTaskError, EnvError
from trinity_sandbox.base import Limits, Session

from trinity_envs_harbor.dockerfile import listed_words, substituted, words_of
from trinity_envs_harbor.layout import (
    HOME,
    assignments,
    image_problems,
    joined,
    layout_problems,
    places_of,
    python_bind,
)
from trinity_envs_harbor.reading import read_task
from trinity_envs_harbor.safe_files import copied_inside, empty_folder, plain_parts
from trinity_envs_harbor.task import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity_sandbox.base import Sandbox

    from trinity_envs_harbor.dockerfile import Instruction
    from trinity_envs_harbor.problems import Problem
    from trinity_envs_harbor.task import HarborTask

__all__ = ["Prepared", "forget_prepared", "limits_of", "prepared", "problems_of"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ETC = {
    "passwd": f"root:x:0:0:root:{HOME}:/bin/sh\nagent:x:65534:65534:agent:{HOME}:/bin/sh\n",
    "group": "root:x:0:\nagent:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
}
_TAIL = 2000  # characters of what a build printed, in a failure


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


@dataclass(kw_only=True)
class _Made:
    """What this process has prepared, and the locks of what it is preparing."""

    by_key: dict[tuple[str, ...], Prepared] = field(default_factory=dict)
    locks: dict[tuple[str, ...], threading.Lock] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    folder: tempfile.TemporaryDirectory[str] | None = None  # deleted when the process ends


_made = _Made()


def problems_of(folder: Path, images: Mapping[str, str]) -> tuple[HarborTask | None, list[Problem]]:
    """Return a task and all that keeps it from running here, notes included."""
    task, problems = read_task(folder)
    if task is not None:
        problems += [*image_problems(task, images), *layout_problems(task)]
    return task, problems


def prepared(folder: Path, *, sandbox: Sandbox, images: Mapping[str, str]) -> Prepared:
    """Return a task's files, made by the instructions of its Dockerfile.

    Raises:
        BadTaskError: it asks for what is not there; each problem with its file and line.
        EnvError: an instruction failed.
    """
    digest = digest_of(folder)
    key = (str(folder.resolve()), digest, sandbox.name)
    with _made.lock:
        lock = _made.locks.setdefault(key, threading.Lock())
    with lock:
        if key not in _made.by_key:
            _made.by_key[key] = _prepare(folder, digest, sandbox=sandbox, images=images)
        return _made.by_key[key]


def forget_prepared() -> None:
    """Delete what was prepared in this process."""
    with _made.lock:
        folder, _made.folder = _made.folder, None
        _made.by_key.clear()
    if folder is not None:
        folder.cleanup()


def limits_of(task: HarborTask, timeout_s: float) -> Limits:
    """Return the limits of one command that may take so long."""
    storage = task.storage_mb << 20
    return Limits(
        cpu_s=timeout_s * task.cpus + 1.0,
        wall_s=timeout_s,
        memory_bytes=task.memory_mb << 20,
        processes=256,
        file_bytes=storage,
        output_bytes=4 << 20,
        disk_bytes=storage,
    )


def _prepare(folder: Path, digest: str, *, sandbox: Sandbox, images: Mapping[str, str]) -> Prepared:
    task, problems = problems_of(folder, images)
    serious = [str(one) for one in problems if not one.is_note]
    if task is None or serious:
        raise BadTaskError("\n".join(serious))
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
    build = _Build(
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
        env=build.env | task.env,
        places=places,
        workdir=task.workdir or build.workdir,
    )


@dataclass(kw_only=True)
class _Build:
    """Follows a Dockerfile, one instruction after the other."""

    task: HarborTask
    sandbox: Sandbox
    files: Path
    binds: tuple[tuple[Path, str], ...]
    places: Mapping[str, str]
    env: dict[str, str]
    arguments: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"

    def make(self) -> None:
        self.files.mkdir()
        for part in (*self.places.values(), "logs/agent", "logs/artifacts", "logs/verifier"):
            empty_folder(self.files, part)
        for one in self.task.build:
            self._follow(one)
        copied_inside(_nothing(self.files), self.files, self.task.workdir or "/")

    def _follow(self, one: Instruction) -> None:
        variables = {**self.arguments, **self.env}
        if one.name == "ENV":
            self.env |= assignments(one, variables)
        elif one.name == "ARG":
            self.arguments |= assignments(one, variables)
        elif one.name == "WORKDIR":
            self.workdir = joined(self.workdir, substituted(words_of(one.rest)[0], variables))
            copied_inside(_nothing(self.files), self.files, self.workdir)
        elif one.name == "COPY":
            self._copy(one, variables)
        elif one.name == "RUN":
            self._run(one)

    def _copy(self, one: Instruction, variables: Mapping[str, str]) -> None:
        words = [substituted(word, variables) for word in words_of(one.rest)]
        *sources, target = [word for word in words if not word.startswith("--")]
        context = (self.task.folder / "environment").resolve()
        found = [path for name in sources for path in _matching(context, name)]
        into_folder = target.endswith("/") or len(found) > 1 or target in {".", "./"}
        where = joined(self.workdir, target)
        if not found:
            raise EnvError(f"{self._place(one)}: COPY finds none of {' '.join(sources)}.")
        for path in found:
            inside = f"{where}/{path.name}" if into_folder and not path.is_dir() else where
            is_old_folder = (self.files / "/".join(plain_parts(inside))).is_dir()
            if is_old_folder and not path.is_dir():
                inside = f"{inside}/{path.name}"
            copied_inside(path, self.files, inside)
            for word in words:
                if word.startswith("--chmod="):
                    target_file = self.files / "/".join(plain_parts(inside))
                    target_file.chmod(int(word.removeprefix("--chmod="), 8))

    def _run(self, one: Instruction) -> None:
        words = listed_words(one.rest)
        command = words or ["/bin/sh", "-c", one.rest]
        if words and not words[0].startswith("/"):
            command = ["/usr/bin/env", *words]
        session = Session(
            sandbox=self.sandbox,
            folder=self.files,
            limits=limits_of(self.task, self.task.build_timeout_s),
            binds=self.binds,
            env={**self.arguments, **self.env},
            places=self.places,
            workdir=self.workdir,
        )
        ended = session.run(command)
        if ended.exit or ended.reason:
            said = (ended.stdout + ended.stderr).decode(errors="replace").strip()[-_TAIL:]
            how = f"was ended by its limit of {ended.reason}" if ended.reason else "failed"
            raise EnvError(
                f"{self._place(one)}: RUN {how} (code {ended.exit}); there is no network, and "
                f"{', '.join(self.places)} are writable. It printed: {said or 'nothing'}"
            )

    def _place(self, one: Instruction) -> str:
        return f"{self.task.folder / 'environment' / 'Dockerfile'}:{one.line}"


def _nothing(files: Path) -> Path:
    """Return an empty folder, copying which makes one."""
    folder = files.parent / "nothing"
    folder.mkdir(exist_ok=True)
    return folder


def _matching(context: Path, name: str) -> list[Path]:
    """Return the files of a build's context that a name means; none outside of it."""
    parts = plain_parts(name)
    if not parts:
        return [context]
    found = sorted(context.glob("/".join(parts)))
    return [path for path in found if path.resolve().is_relative_to(context)]
