"""Follow a Dockerfile in folders of this machine, one instruction after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity.errors import EnvError
from trinity_sandbox.base import Limits, Session
from trinity_sandbox.trees import remove_tree

from trinity_envs_harbor.dockerfile import listed_words, substituted, words_of
from trinity_envs_harbor.ignored import context_of
from trinity_envs_harbor.layout import assignments, joined
from trinity_envs_harbor.safe_files import copied_inside, empty_folder, plain_parts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trinity_sandbox.base import Sandbox

    from trinity_envs_harbor.dockerfile import Instruction
    from trinity_envs_harbor.task import HarborTask

__all__ = ["FileBuild", "limits_of"]

_TAIL = 2000  # characters of what a build printed, in a failure


def limits_of(task: HarborTask, timeout_s: float) -> Limits:
    """Return the limits of one command that may take so long."""
    storage = task.storage_mb << 20
    return Limits(
        cpu_s=timeout_s * task.cpus + 1.0,
        wall_s=timeout_s,
        memory_bytes=task.memory_mb << 20,
        processes=256,
        open_files=256,
        file_bytes=storage,
        output_bytes=4 << 20,
        disk_bytes=storage,
    )


@dataclass(kw_only=True)
class FileBuild:
    """Follows a Dockerfile; ``env`` and ``workdir`` grow with it."""

    task: HarborTask
    sandbox: Sandbox
    files: Path
    binds: tuple[tuple[Path, str], ...]
    places: Mapping[str, str]
    env: dict[str, str]
    arguments: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"

    def make(self) -> None:
        """Make the folders, and follow each instruction.

        Raises:
            EnvError: one failed.
        """
        self.files.mkdir()
        for part in (*self.places.values(), "logs/agent", "logs/artifacts", "logs/verifier"):
            empty_folder(self.files, part)
        made = self.files.parent / "context"
        try:
            context = context_of(self.task.folder / "environment", made)
            for one in self.task.build:
                self._follow(one, context)
        finally:
            if made.is_dir():
                remove_tree(made)
        copied_inside(_nothing(self.files), self.files, self.task.workdir or "/")

    def _follow(self, one: Instruction, context: Path) -> None:
        variables = {**self.arguments, **self.env}
        if one.name == "ENV":
            self.env |= assignments(one, variables)
        elif one.name == "ARG":
            self.arguments |= assignments(one, variables)
        elif one.name == "WORKDIR":
            self.workdir = joined(self.workdir, substituted(words_of(one.rest)[0], variables))
            copied_inside(_nothing(self.files), self.files, self.workdir)
        elif one.name == "COPY":
            self._copy(one, context, variables)
        elif one.name == "RUN":
            self._run(one)

    def _copy(self, one: Instruction, context: Path, variables: Mapping[str, str]) -> None:
        words = [substituted(word, variables) for word in words_of(one.rest)]
        *sources, target = [word for word in words if not word.startswith("--")]
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
            copied_inside(path.resolve(), self.files, inside)  # of a link, what it leads to
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
    """Return the files and folders of a build's context that a name means; none outside of it."""
    parts = plain_parts(name)
    if not parts:
        return [context]
    found = sorted(context.glob("/".join(parts)))
    there = [path for path in found if path.is_file() or path.is_dir()]  # no device, no pipe
    return [path for path in there if path.resolve().is_relative_to(context)]
