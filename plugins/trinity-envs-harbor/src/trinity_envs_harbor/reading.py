"""Read a task directory and check it: each problem has its file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trinity_envs_harbor.dockerfile import Instruction, read_dockerfile
from trinity_envs_harbor.ignored import pattern_problems
from trinity_envs_harbor.problems import Problem, line_of
from trinity_envs_harbor.refusals import notes_of, refusals_of
from trinity_envs_harbor.task import HarborTask, TaskStep
from trinity_envs_harbor.task_links import link_problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["read_task"]

_OF_AGENT = {"timeout_sec", "user"}
_OF_VERIFIER = {"timeout_sec", "user", "env", "environment_mode", "environment", "collect"}
_KNOWN = {  # table: its keys
    "": {
        *("schema_version", "version", "task", "metadata", "verifier", "agent", "environment"),
        *("solution", "source", "artifacts", "steps", "multi_step_reward_strategy"),
    },
    "agent": _OF_AGENT,
    "verifier": _OF_VERIFIER,
    "environment": {
        *("build_timeout_sec", "docker_image", "cpus", "memory_mb", "memory", "storage_mb"),
        *("storage", "gpus", "gpu_types", "tpu", "os", "allow_internet", "network_mode"),
        *("allowed_hosts", "mcp_servers", "env", "skills_dir", "healthcheck", "workdir"),
    },
    "solution": {"env"},
    "task": {"name", "description", "authors", "keywords", "version"},
}
_KNOWN_OF_STEP = {
    "": {"name", "agent", "verifier", "min_reward", "healthcheck", "artifacts"},
    "agent": _OF_AGENT,
    "verifier": _OF_VERIFIER,
}
_OF_THE_HOST = re.compile(r"\$\{?\w+")
_TIMEOUT = ("agent.timeout_sec", "verifier.timeout_sec")
_USE = "Write a Dockerfile whose FROM names a base image."


def read_task(
    folder: Path, *, tasks: Path | None = None, in_container: bool = False
) -> tuple[HarborTask | None, list[Problem]]:
    """Return a task, and all that is wrong with it; None: it cannot be read at all.

    Args:
        folder: of the task.
        tasks: the folder of tasks that the user gave, in which links of the task may lead.
        in_container: its Dockerfile is built, and it has the users that it names.
    """
    if problems := link_problems(folder, tasks):
        return None, problems
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
    found = _Tables(folder=folder, file=file, text=text, given=given, in_container=in_container)
    return _task(found), found.problems


@dataclass(kw_only=True)
class _Tables:
    """The tables of a task, or of one of its steps, whose values are checked as they are read."""

    folder: Path
    file: Path
    text: str
    given: Mapping[str, Any]  # Any: of TOML
    step: int = 0  # from 1; 0: it is the task
    in_container: bool = False
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = _KNOWN_OF_STEP if self.step else _KNOWN
        odd = [name for name in known if not isinstance(self.given.get(name, {}), Mapping)]
        for name in filter(None, odd):
            self.refuse(name, f"{name} is {self.given[name]!r:.40}, which is no table.")
        self.given = {name: value for name, value in self.given.items() if name not in odd}
        for table, names in known.items():
            for key in self.table(table) if table else self.given:
                if key not in names:
                    full = f"{table}.{key}" if table else key
                    self.refuse(full, f"{full} is not known, and has no effect.", is_note=True)

    def table(self, name: str) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self.given.get(name) or {}
        return value

    def refuse(self, key: str, what: str, *, is_note: bool = False) -> None:
        """Note a problem with a dotted key."""
        line = line_of(self.text, key, step=self.step)
        what = f"step {self.step}: {what}" if self.step else what
        one = Problem(file=self.file, line=line, what=what, is_note=is_note)
        if one not in self.problems:
            self.problems.append(one)

    def refusals(self, given: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
        """Return what of tables is not given."""
        return list(refusals_of(given, folder, in_container=self.in_container))

    def missing(self, file: Path, what: str) -> None:
        self.problems.append(Problem(file=file, what=f"it is missing: {what}."))

    def number(self, key: str, default: float) -> float:
        """Return a number above 0 of a dotted key."""
        table, _, name = key.partition(".")
        value = self.table(table).get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            self.refuse(key, f"{key} is {value!r}. Give a number above 0.")
            return default
        return float(value)

    def megabytes(self, name: str, default: int) -> int:
        """Return an amount of the environment: ``NAME_mb``, or as texts of older tasks say it."""
        older, factors = self.table("environment").get(name), {"M": 1, "G": 1024}
        if isinstance(older, str) and older[-1:].upper() in factors and older[:-1].isdigit():
            return int(older[:-1]) * factors[older[-1].upper()]
        has_new = f"{name}_mb" in self.table("environment")
        return int(self.number(f"environment.{name}{'_mb' if has_new else ''}", default))

    def variables(self, table: str) -> dict[str, str]:
        given = self.table(table).get("env") or {}
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

    def artifacts(self) -> Iterator[str]:
        given = self.given.get("artifacts") or []
        for one in given if isinstance(given, list) else [given]:
            path = one.get("source") if isinstance(one, Mapping) else one
            has_more = isinstance(one, Mapping) and set(one) != {"source"}
            if has_more or not isinstance(path, str) or not path.startswith("/"):
                what = f"the artifact {one!r} is not understood. Give an absolute path."
                self.refuse("artifacts", what)
            else:
                yield path

    def min_reward(self) -> dict[str, float]:
        """Return what each number must reach; a number alone is of ``reward``."""
        value = self.given.get("min_reward")
        pairs: Mapping[str, Any] = value if isinstance(value, Mapping) else {"reward": value}
        pairs = {} if value is None else pairs
        if all(
            isinstance(one, (int, float)) and not isinstance(one, bool) for one in pairs.values()
        ):
            return {str(name): float(one) for name, one in pairs.items()}
        told = f"min_reward is {value!r:.80}. Give a number, or a table of numbers."
        self.refuse("min_reward", told)
        return {}


def _task(found: _Tables) -> HarborTask:
    for key, what in found.refusals(found.given, found.folder):
        found.refuse(key, what)
    build, image = _environment(found)
    steps = tuple(_steps(found))
    for note in () if found.in_container else notes_of(found.given):
        found.refuse(*note, is_note=True)
    strategy = found.given.get("multi_step_reward_strategy") or "mean"
    if strategy not in ("mean", "final"):
        told = f"multi_step_reward_strategy is {strategy!r}. Say mean or final."
        found.refuse("multi_step_reward_strategy", told)
    return HarborTask(
        folder=found.folder,
        name=str(found.table("task").get("name") or found.folder.name),
        image=image,
        build=tuple(build),
        steps=steps,
        workdir=str(found.table("environment").get("workdir") or ""),
        build_timeout_s=found.number("environment.build_timeout_sec", 600.0),
        cpus=found.number("environment.cpus", 1.0),
        memory_mb=found.megabytes("memory", 2048),
        storage_mb=found.megabytes("storage", 10240),
        env=found.variables("environment"),
        solution_env=found.variables("solution"),
        is_final=strategy == "final",
        asks_for_network=_asks_for_network(found.table("environment")),
    )


def _asks_for_network(environment: Mapping[str, Any]) -> bool:
    mode, older = environment.get("network_mode"), environment.get("allow_internet")
    return mode == "public" or (mode is None and older is not False)


def _environment(found: _Tables) -> tuple[list[Instruction], str]:
    image = str(found.table("environment").get("docker_image") or "")
    dockerfile = found.folder / "environment" / "Dockerfile"
    if not dockerfile.is_file():
        if not image:
            what = f"there is no environment/Dockerfile and no environment.docker_image. {_USE}"
            found.refuse("environment", what)
        return [], image
    build, problems = read_dockerfile(dockerfile)
    problems += pattern_problems(found.folder / "environment")
    found.problems += [] if found.in_container else problems
    base = next((one.rest for one in build if one.name == "FROM"), "")
    words = [word for word in base.split() if not word.startswith("--")]
    return build, words[0] if words else ""


def _steps(found: _Tables) -> Iterator[TaskStep]:
    """Yield the steps; a task without ``[[steps]]`` is one."""
    given = found.given.get("steps") or []
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        found.refuse("steps", f"steps is {given!r:.40}. Write a [[steps]] table for each.")
        return
    if not given:
        name = str(found.table("task").get("name") or found.folder.name)
        yield _step(found, found, found.folder, name)
    names: list[str] = []
    for number, table in enumerate(given, start=1):
        own = replace(found, given=table, step=number)
        name = str(own.given.get("name") or "")
        if not name or name in {".", "..", *names} or set(name) & set("/\\"):
            own.refuse("name", f"its name is {name!r}. Name a folder of steps/, each one once.")
            continue
        names.append(name)
        yield _step(found, own, found.folder / "steps" / name, name)


def _step(found: _Tables, own: _Tables, folder: Path, name: str) -> TaskStep:
    """Return a step, whose values are its own, else the task's; so are its tests and solution."""
    _refuse_of_step(found, own, folder)
    instruction = _instruction(found, folder)
    folders = list(dict.fromkeys((found.folder, folder)))  # those of the step win
    tests = tuple(one / "tests" for one in folders if (one / "tests").is_dir())
    if not any((one / "test.sh").is_file() for one in tests):
        found.missing(folder / "tests/test.sh", "the verifier of the task")
    solutions = [one / "solution" for one in folders if (one / "solution").is_dir()]
    mode = {**found.table("verifier"), **own.table("verifier")}.get("environment_mode")
    return TaskStep(
        name=name,
        instruction=instruction,
        tests=tests,
        solution=solutions[-1] if solutions else None,
        files=folder / "workdir" if own.step and (folder / "workdir").is_dir() else None,
        agent_timeout_s=own.number(_TIMEOUT[0], found.number(_TIMEOUT[0], 600.0)),
        verifier_timeout_s=own.number(_TIMEOUT[1], found.number(_TIMEOUT[1], 600.0)),
        agent_user=_user(found, own, "agent"),
        verifier_user=_user(found, own, "verifier"),
        verifier_env=found.variables("verifier") | own.variables("verifier"),
        is_separate=mode == "separate",
        artifacts=tuple(dict.fromkeys((*found.artifacts(), *own.artifacts()))),
        min_reward=own.min_reward() if own.step else {},
    )


def _user(found: _Tables, own: _Tables, who: str) -> str:
    given = {**found.table(who), **own.table(who)}.get("user")
    return "" if given is None else str(given)


def _refuse_of_step(found: _Tables, own: _Tables, folder: Path) -> None:
    for one in (own.folder, folder):
        for script in ("tests/test.sh", "solution/solve.sh", "workdir/setup.sh"):
            file = one / script
            if file.is_file() and file.read_bytes().partition(b"\n")[0].endswith(b"\r"):
                told = "its lines end as on Windows, so that no shell runs it. Write plain ends."
                problem = Problem(file=file, line=1, what=told)
                found.problems += [] if problem in found.problems else [problem]
    if own.step:
        merged = {one: {**found.table(one), **own.table(one)} for one in ("agent", "verifier")}
        known = set(found.refusals(found.given, found.folder))
        for key, what in found.refusals({**own.given, **merged}, folder):
            if (key, what) not in known:
                own.refuse(key, what)


def _instruction(found: _Tables, folder: Path) -> str:
    file = folder / "instruction.md"
    if not file.is_file():
        found.missing(file, "the prompt of the task")
        return ""
    return file.read_text(encoding="utf-8-sig", errors="replace")
