"""A task directory of Harbor: what it asks for."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity_envs_harbor.problems import line_of
from trinity_envs_harbor.task_links import linked_folders, roots_of, stays_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trinity_envs_harbor.dockerfile import Instruction

__all__ = ["HarborTask", "TaskStep", "digest_of", "task_folders"]


@dataclass(frozen=True, kw_only=True)
class TaskStep:
    """An instruction, and the verifier of what an agent made of it.

    Attributes:
        name: of ``[[steps]]``; without them, the task's.
        instruction: the prompt.
        tests: folders that are copied to ``/tests``, each over those before it.
        solution: the folder of ``solve.sh``; None: there is none.
        files: of this step, copied into the working directory first; its ``setup.sh`` runs then.
        agent_timeout_s, verifier_timeout_s: seconds.
        agent_user, verifier_user: of a container; "": the image's own.
        verifier_env: further variables of the verifier.
        is_separate: the verifier runs in an environment of its own.
        artifacts: paths that a separate verifier is given.
        min_reward: what numbers of the verifier must reach, or no later step runs.
    """

    name: str
    instruction: str
    tests: tuple[Path, ...]
    solution: Path | None = None
    files: Path | None = None
    agent_timeout_s: float = 600.0
    verifier_timeout_s: float = 600.0
    agent_user: str = ""
    verifier_user: str = ""
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    is_separate: bool = False
    artifacts: tuple[str, ...] = ()
    min_reward: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HarborTask:
    """What a task asks for, with Harbor's defaults.

    Attributes:
        folder: where it is.
        name: of ``[task]``, else the folder's.
        image: the base image.
        build: the Dockerfile's instructions; none: there is no Dockerfile.
        build_timeout_s: seconds, of each instruction.
        cpus, memory_mb, storage_mb: the most that all processes together use.
        steps: at least one; they share the environment.
        is_final: the reward is that of the last step, not the mean of all.
        asks_for_network: ``network_mode`` is public, its default.
    """

    folder: Path
    name: str
    image: str
    steps: tuple[TaskStep, ...]
    build: tuple[Instruction, ...] = ()
    workdir: str = ""
    build_timeout_s: float = 600.0
    cpus: float = 1.0
    memory_mb: int = 2048
    storage_mb: int = 10240
    env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)
    is_final: bool = False
    asks_for_network: bool = True

    def line_of(self, key: str) -> int:
        """Return the line of ``task.toml`` that sets a dotted key; 0: none does."""
        text = (self.folder / "task.toml").read_text(encoding="utf-8-sig", errors="replace")
        return line_of(text, key)


def task_folders(folder: Path) -> list[Path]:
    """Return the folders below one, itself included, that hold a ``task.toml``, in order."""
    return sorted(file.parent for file in folder.rglob("task.toml"))


def digest_of(folder: Path, tasks: Path | None = None) -> str:
    """Return what identifies a task: the SHA-256 of its files' names, modes and contents.

    Args:
        folder: of the task.
        tasks: the folder of tasks, in which links may lead to shared files: of a link that leads
            elsewhere, nothing but its own text is read.
    """
    digest, roots = hashlib.sha256(), roots_of(folder, tasks)
    folders = (folder, *linked_folders(folder, roots))
    for file in sorted(path for one in folders for path in one.rglob("*")):
        name = os.fsencode(file.relative_to(folder))  # of any bytes
        if file.is_symlink() and not stays_in(file, roots):
            digest.update(name + b"\0link\0" + os.fsencode(file.readlink()))
            continue
        if not file.is_file():
            continue
        is_program = bool(file.stat().st_mode & 0o100)
        digest.update(name + f"\0{is_program}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
