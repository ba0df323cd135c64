"""A task directory of Harbor, read and checked."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity_envs_harbor.dockerfile import Instruction, read_dockerfile
from trinity_envs_harbor.problems import Problem, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["HarborTask", "digest_of", "read_task", "task_folders"]

_KNOWN = {  # table: its keys; None: of any
    "": {
        *("schema_version", "version", "task", "metadata", "verifier", "agent", "environment"),
        *("solution", "source", "artifacts", "steps", "multi_step_reward_strategy"),
    },
    "agent": {"timeout_sec", "user"},
    "verifier": {"timeout_sec", "user", "env", "environment_mode", "environment", "collect"},
    "environment": {
        *("build_timeout_sec", "docker_image", "cpus", "memory_mb", "memory", "storage_mb"),
        *("storage", "gpus", "gpu_types", "tpu", "os", "allow_internet", "network_mode"),
        *("allowed_hosts", "mcp_servers", "env", "skills_dir", "healthcheck", "workdir"),
    },
    "solution": {"env"},
    "task": {"name", "description", "authors", "keywords", "version"},
}
_CONTAINER = "It needs a container, which Trinity does not start"
_OF_THE_HOST = re.compile(r"\$\{?\w+")


@dataclass(frozen=True, kw_only=True)
class HarborTask:
    """What a task asks for, with Harbor's defaults.

    Attributes:
        folder: where it is.
        name: of ``[task]``, else the folder's.
        instruction: the prompt.
        image: the base image.
        steps: the Dockerfile's instructions; none: there is no Dockerfile.
        agent_timeout_s, verifier_timeout_s, build_timeout_s: seconds.
        cpus, memory_mb, storage_mb: the most that all processes together use.
        is_separate: the verifier runs in an environment of its own.
        artifacts: paths that a separate verifier is given.
    """

    folder: Path
    name: str
    instruction: str
    image: str
    steps: tuple[Instruction, ...] = ()
    workdir: str = ""
    agent_timeout_s: float = 600.0
    verifier_timeout_s: float = 600.0
    build_timeout_s: float = 600.0
    cpus: float = 1.0
    memory_mb: int = 2048
    storage_mb: int = 10240
    env: Mapping[str, str] = field(default_factory=dict)
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)
    is_separate: bool = False
    artifacts: tuple[str, ...] = ()

    def line_of(self, key: str) -> int:
        """Return the line of ``task.toml`` that sets a dotted key; 0: none does."""
        text = (self.folder / "task.toml").read_text(encoding="utf-8-sig", errors="replace")
        return line_of(text, key)


def task_folders(folder: Path) -> list[Path]:
    """Return the folders below one, itself included, that hold a ``task.toml``, in order."""
    return sorted(file.parent for file in folder.rglob("task.toml"))


def digest_of(folder: Path) -> str:
    """Return what identifies a task: the SHA-256 of its files' names, modes and contents."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        is_program = bool(file.stat().st_mode & 0o100)
        name = os.fsencode(file.relative_to(folder))  # of any bytes
        digest.update(name + f"\0{is_program}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def read_task(folder: Path) -> tuple[HarborTask | None, list[Problem]]:
    """Return a task, and all that is wrong with it; None: it cannot be read at all."""
    file = folder / "task.toml"
    if not file.is_file():
        return None, [Problem(file=file, what="there is no task.toml. Give a task's folder.")]
    text = file.read_text(encoding="utf-8-sig", errors="replace")
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        what = f"it is no TOML: {error}."
        return None, [Problem(file=file, line=int(line.group(1)) if line else 0, what=what)]
    odd = [name for name in _KNOWN if name and not isinstance(given.get(name, {}), Mapping)]
    found = _Reading(
        folder=folder,
        file=file,
        text=text,
        given={name: value for name, value in given.items() if name not in odd},
    )
    for name in odd:
        found.refuse(name, f"{name} is {given[name]!r:.40}, which is no table.")
    return found.task(), found.problems


@dataclass(kw_only=True)
class _Reading:
    folder: Path
    file: Path
    text: str
    given: Mapping[str, Any]  # Any: of TOML
    problems: list[Problem] = field(default_factory=list)

    def task(self) -> HarborTask:
        self._unknown_keys()
        for key, what in _refusals(self.given, self.folder):
            self.refuse(key, what)
        instruction = self._text_of("instruction.md", "the prompt")
        self._text_of("tests/test.sh", "the verifier")
        self._line_ends()
        steps, image = self._environment()
        for note in _notes(self.given):
            self.refuse(*note, is_note=True)
        artifacts = tuple(self._artifacts())
        agent, verifier, environment = map(self._table, ("agent", "verifier", "environment"))
        return HarborTask(
            folder=self.folder,
            name=str(self._table("task").get("name") or self.folder.name),
            instruction=instruction,
            image=image,
            steps=tuple(steps),
            workdir=str(environment.get("workdir") or ""),
            agent_timeout_s=self._number("agent.timeout_sec", agent.get("timeout_sec"), 600.0),
            verifier_timeout_s=self._number(
                "verifier.timeout_sec", verifier.get("timeout_sec"), 600.0
            ),
            build_timeout_s=self._number(
                "environment.build_timeout_sec", environment.get("build_timeout_sec"), 600.0
            ),
            cpus=self._number("environment.cpus", environment.get("cpus"), 1.0),
            memory_mb=self._megabytes(environment, "memory", 2048),
            storage_mb=self._megabytes(environment, "storage", 10240),
            env=self._variables("environment"),
            verifier_env=self._variables("verifier"),
            solution_env=self._variables("solution"),
            is_separate=verifier.get("environment_mode") == "separate",
            artifacts=artifacts,
        )

    def _table(self, name: str) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self.given.get(name) or {}
        return value

    def refuse(self, key: str, what: str, *, is_note: bool = False) -> None:
        """Note a problem with a dotted key."""
        line = line_of(self.text, key)
        one = Problem(file=self.file, line=line, what=what, is_note=is_note)
        if one not in self.problems:
            self.problems.append(one)

    def _unknown_keys(self) -> None:
        for table, known in _KNOWN.items():
            keys = self.given if not table else self._table(table)
            for key in keys:
                if key not in known:
                    full = f"{table}.{key}" if table else key
                    self.refuse(full, f"{full} is not known, and has no effect.", is_note=True)

    def _text_of(self, name: str, what: str) -> str:
        file = self.folder / name
        if not file.is_file():
            told = f"it is missing: {what} of the task."
            self.problems.append(Problem(file=file, what=told))
            return ""
        return file.read_text(encoding="utf-8-sig", errors="replace")

    def _line_ends(self) -> None:
        for name in ("tests/test.sh", "solution/solve.sh"):
            file = self.folder / name
            if file.is_file() and file.read_bytes().partition(b"\n")[0].endswith(b"\r"):
                told = "its lines end as on Windows, so that no shell runs it. Write plain ends."
                self.problems.append(Problem(file=file, line=1, what=told))

    def _environment(self) -> tuple[list[Instruction], str]:
        image = str(self._table("environment").get("docker_image") or "")
        dockerfile = self.folder / "environment" / "Dockerfile"
        if not dockerfile.is_file():
            if not image:
                what = f"there is no environment/Dockerfile and no environment.docker_image. {_USE}"
                self.refuse("environment", what)
            return [], image
        steps, problems = read_dockerfile(dockerfile)
        self.problems += problems
        base = next((one.rest for one in steps if one.name == "FROM"), "")
        words = [word for word in base.split() if not word.startswith("--")]
        return steps, words[0] if words else ""

    def _number(self, key: str, value: Any, default: float) -> float:
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            self.refuse(key, f"{key} is {value!r}. Give a number above 0.")
            return default
        return float(value)

    def _megabytes(self, environment: Mapping[str, Any], name: str, default: int) -> int:
        older, factors = environment.get(name), {"M": 1, "G": 1024}
        if isinstance(older, str) and older[-1:].upper() in factors and older[:-1].isdigit():
            return int(older[:-1]) * factors[older[-1].upper()]
        key = f"{name}_mb"
        return int(self._number(f"environment.{key}", environment.get(key, older), default))

    def _variables(self, table: str) -> dict[str, str]:
        given = self._table(table).get("env") or {}
        if not isinstance(given, Mapping):
            self.refuse(f"{table}.env", f"{table}.env is {given!r:.40}, which is no table.")
            return {}
        for name, value in given.items():
            if _OF_THE_HOST.search(str(value)):
                told = (
                    f"{table}.env.{name} takes {value!r} from this machine's environment, which no "
                    f"sandbox sees. Write the value."
                )
                self.refuse(f"{table}.env.{name}", told)
        return {str(name): str(value) for name, value in given.items()}

    def _artifacts(self) -> Iterator[str]:
        given = self.given.get("artifacts") or []
        for one in given if isinstance(given, list) else [given]:
            path = one.get("source") if isinstance(one, Mapping) else one
            has_more = isinstance(one, Mapping) and set(one) != {"source"}
            if has_more or not isinstance(path, str) or not path.startswith("/"):
                what = f"the artifact {one!r} is not understood. Give an absolute path."
                self.refuse("artifacts", what)
            else:
                yield path


_USE = "Write a Dockerfile whose FROM names a base image."


def _refusals(given: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what no sandbox can do: a dotted key, and why."""
    if given.get("steps"):
        yield "steps", "it has several steps, which are not run. Split it into tasks of one step."
    yield from _of_environment(given.get("environment") or {}, folder)
    yield from _of_verifier(given.get("verifier") or {}, folder)
    users = {str((given.get(one) or {}).get("user") or "root") for one in ("agent", "verifier")}
    if len(users) > 1:
        told = "A sandbox has one user. Remove both, or say the same."
        yield "agent.user", f"agent.user and verifier.user differ. {told}"


def _of_environment(environment: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / "environment" / name).exists():
            yield "environment", f"environment/{name}: services beside the task. {_CONTAINER}."
    for name in ("gpus", "tpu", "mcp_servers", "skills_dir", "healthcheck", "allowed_hosts"):
        if environment.get(name):
            yield f"environment.{name}", f"environment.{name} is not provided. {_CONTAINER}."
    if str(environment.get("os") or "linux").lower() != "linux":
        yield "environment.os", f"environment.os is {environment['os']!r}. Sandboxes are of Linux."
    if environment.get("network_mode") == "allowlist":
        yield "environment.network_mode", "a list of allowed hosts is not provided; use none."


def _of_verifier(verifier: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    if verifier.get("environment_mode", "shared") not in ("shared", "separate"):
        told = f"it is {verifier['environment_mode']!r}. Say shared or separate."
        yield "verifier.environment_mode", f"verifier.environment_mode: {told}"
    for name in ("environment", "collect"):
        if verifier.get(name):
            told = "A separate verifier gets a new copy of the task's environment."
            yield f"verifier.{name}", f"verifier.{name} is not followed. {told}"
    if (folder / "tests" / "Dockerfile").exists():
        yield "verifier", f"tests/Dockerfile: the verifier has an image of its own. {_CONTAINER}."


def _notes(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is done otherwise than Harbor does: a dotted key, and how."""
    environment = given.get("environment") or {}
    mode = environment.get("network_mode")
    asks = mode == "public" or environment.get("allow_internet") is True
    if asks:
        key = "environment.network_mode" if mode else "environment.allow_internet"
        yield key, "the task asks for the network, and a sandbox has none."
    if str((given.get("agent") or {}).get("user") or "root") not in {"root", "0"}:
        yield "agent.user", "the one user of a sandbox has no name; agent.user has no effect."
