"""Which paths a task's commands see, and which base images stand for this machine."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError
from trinity_sandbox.base import interpreter
from trinity_sandbox.choice import sandbox_named

from trinity_envs_harbor.containers import ContainerClient
from trinity_envs_harbor.dockerfile import substituted, words_of
from trinity_envs_harbor.problems import Problem
from trinity_envs_harbor.safe_files import plain_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from trinity_sandbox.base import Sandbox

    from trinity_envs_harbor.dockerfile import Instruction
    from trinity_envs_harbor.task import HarborTask

__all__ = [
    "HOME",
    "HOST",
    "image_problems",
    "images_for",
    "layout_problems",
    "missing_sandbox",
    "places_of",
    "python_bind",
    "task_sandbox",
]

HOME = "/" + "root"  # as in most images
HOST = "host"  # an image that stands for this machine's programs
IMAGES = "images.toml"
_ALWAYS = ("app", "data", "home", "logs", "opt", "root", "srv", "tmp", "var", "workspace")
_OF_THE_SYSTEM = ("bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr")
_PYTHON = "/python"  # where this Python is shown if its own path is one that commands write


def images_for(folder: Path, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what base images stand for: those given, and of the nearest ``images.toml`` above.

    Args:
        folder: of a task.
        given: they win.

    Raises:
        ConfigError: the file is no TOML.
    """
    for above in folder.resolve().parents[:3]:
        file = above / IMAGES
        if file.is_file():
            read = _toml_of(file)
            return {**{str(k): str(v) for k, v in read.items()}, **(given or {})}
    return dict(given or {})


def _toml_of(file: Path) -> dict[str, Any]:
    if not file.stat().st_size:  # also of a link into /proc, where a file may block
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ConfigError(f"{file} is no TOML: {error}.") from error


def image_problems(task: HarborTask, images: Mapping[str, str]) -> list[Problem]:
    """Return why a task's base image cannot be used."""
    if not task.image:
        return []
    value = images.get(task.image, images.get("*"))
    if value == HOST:
        return []
    first = next((one for one in task.build if one.name == "FROM"), None)
    file = task.folder / ("environment/Dockerfile" if first else "task.toml")
    what = (
        f"the base image {task.image!r} stands for nothing. Write {task.image!r} = {HOST!r} into "
        f"{IMAGES} beside the tasks, or give --image {task.image}={HOST}: the task then has this "
        f"machine's programs."
        if value is None
        else f"the base image {task.image!r} stands for {value!r}. It can stand for {HOST!r} alone."
    )
    line = first.line if first else task.line_of("environment.docker_image")
    return [Problem(file=file, line=line, what=what)]


def places_of(task: HarborTask) -> dict[str, str]:
    """Return the folders that commands write: at ``/NAME``, for each of them the folder NAME."""
    tops = {plain_parts(path)[0] for _, path in _paths(task) if plain_parts(path)}
    return {f"/{top}": top for top in sorted({*_ALWAYS, *tops} - set(_OF_THE_SYSTEM))}


def layout_problems(task: HarborTask) -> list[Problem]:
    """Return the paths that a task writes and that are the system's, or stand alone at ``/``."""
    found = list(_files_at_the_top(task))
    for one, path in _paths(task):
        top = (plain_parts(path) or [""])[0]
        if top in _OF_THE_SYSTEM:
            file = task.folder / ("environment/Dockerfile" if one else "task.toml")
            what = f"{path} lies below /{top}, which is this machine's and read-only. Use /app."
            line = one.line if one else task.line_of("environment.workdir")
            found.append(Problem(file=file, line=line, what=what))
    if not task.workdir and all(one.name != "WORKDIR" for one in task.build):
        for file in (step.files for step in task.steps if step.files):
            what = "its files go into the working directory, and the task has none. Set WORKDIR."
            found.append(Problem(file=file, what=what))
    return found


def _files_at_the_top(task: HarborTask) -> Iterator[Problem]:
    """Yield what is copied to ``/`` itself, where a sandbox shows folders alone."""
    named = [(one, path, plain_parts(path)) for one, path in _paths(task)]
    is_copy = {id(one): one is not None and one.name == "COPY" for one, _, _ in named}
    folders = {
        *_ALWAYS,
        *(parts[0] for one, _, parts in named if len(parts) > (1 if is_copy[id(one)] else 0)),
    }
    for one, path, parts in named:
        if one is None or not is_copy[id(one)] or (parts and parts[0] in folders):
            continue
        words = [word for word in words_of(one.rest) if not word.startswith("--")]
        is_file = (task.folder / "environment" / words[0]).is_file()
        if not parts or (is_file and not path.endswith("/")):
            what = f"COPY to {path}: a sandbox shows no files at / itself. Copy them into /app."
            file = task.folder / "environment/Dockerfile"
            yield Problem(file=file, line=one.line, what=what)


def python_bind(places: Mapping[str, str]) -> tuple[list[tuple[Path, str]], str]:
    """Return what shows this Python, without its packages, to commands, and its ``bin``.

    Args:
        places: what commands write, which may hold this Python's own path.
    """
    _, folders = interpreter()
    if not folders:
        return [], "/usr/bin"
    (folder,) = folders[:1]
    is_hidden = any(folder.is_relative_to(place) for place in places)
    shown = _PYTHON if is_hidden else str(folder)
    return [(folder, shown)], f"{shown}/bin"


def _paths(task: HarborTask) -> Iterator[tuple[Instruction | None, str]]:
    """Yield the absolute paths that a task names: by which instruction, and the path."""
    workdir, variables = "/", dict[str, str]()
    for one in task.build:
        if one.name in {"ENV", "ARG"}:
            variables |= assignments(one, variables)
        elif one.name == "WORKDIR":
            workdir = joined(workdir, substituted(" ".join(words_of(one.rest)), variables))
            yield one, workdir
        elif one.name == "COPY":
            words = [word for word in words_of(one.rest) if not word.startswith("--")]
            if len(words) > 1:
                yield one, joined(workdir, substituted(words[-1], variables))
    if task.workdir:
        yield None, task.workdir
    for path in dict.fromkeys(path for step in task.steps for path in step.artifacts):
        yield None, path


def joined(workdir: str, path: str) -> str:
    """Return an absolute path; one that is not is below the working directory."""
    return path if path.startswith("/") else f"{workdir.rstrip('/')}/{path}"


def assignments(one: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """Return what an ENV or ARG sets; an ARG without a default sets nothing."""
    words: Sequence[str] = words_of(one.rest)
    if one.name == "ENV" and words and "=" not in words[0]:  # the older form: ENV NAME VALUE
        words = [f"{words[0]}={one.rest.partition(words[0])[2].strip()}"]
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name: substituted(value, variables) for name, _, value in pairs}


def task_sandbox(name: str = "auto") -> Sandbox | ContainerClient:
    """Return where tasks run: ``auto``, ``bwrap``, or ``container``, if it works here.

    Raises:
        ConfigError: it does not, or cannot show a task's paths.
    """
    if name == "container":
        return ContainerClient.found()
    try:
        used = sandbox_named("bwrap" if name == "auto" else name)
        with used.open(places={"/app": "app"}):
            return used
    except ConfigError as error:
        remedy = "Or run tasks with docker or podman: sandbox: container."
        raise ConfigError(f"{error} {remedy}") from error


def missing_sandbox() -> str | None:
    """Return why no sandbox of this machine can run a task; None: one can."""
    try:
        task_sandbox()
    except ConfigError as error:
        return str(error)
    return None
