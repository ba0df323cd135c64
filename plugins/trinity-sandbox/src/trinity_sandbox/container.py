"""The sandbox that is a container, by the command line of docker or podman.

driver --run NAME--> client --> daemon --> container: sh, timeout, the command
   |                                           |
   +-- at the deadline, and at each end: rm --force NAME

The client has no limits of its own; the container has them. Where the driver is killed, the
container's own deadline ends the command.
"""

from __future__ import annotations

import functools
import json
import math
import os
import secrets
import shutil
import signal
import subprocess
from typing import IO, TYPE_CHECKING, Any, ClassVar

from trinity.errors import ConfigError, EnvError

from trinity_sandbox.base import Sandbox, Session
from trinity_sandbox.supervise import Ended, run_client
from trinity_sandbox.trees import give_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = [
    "DEFAULT_IMAGE",
    "LABEL",
    "ContainerSandbox",
    "client_environment",
    "container_client",
]

DEFAULT_IMAGE = "python:3.11-slim"
LABEL = "org.trinity.sandbox"  # of every container, so that what a killed run left can be pruned
_INSIDE = "/session"
_NOBODY = 65534
_LATER_S = 5  # the deadline inside comes after the one outside
_CALL_S = 30.0  # for the client to answer
_NEVER_STARTED = "0001-01-01"
_OF_CLIENT = (
    *("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "CONTAINER_HOST"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
)


class ContainerSandbox(Sandbox):
    """A container: no network, a read-only image, no capabilities, no root, and limits.

    ``container:IMAGE`` names an image that is there; it needs ``sh`` and ``timeout``. The limit of
    processor time is of each process; all together have one processor for ``wall_s``.
    """

    name: ClassVar[str] = "container"

    def __init__(self, image: str = "") -> None:
        self.image = image or DEFAULT_IMAGE

    def plan(self, session: Session, command: Sequence[str]) -> dict[str, Any]:
        """Return ``argv``, the client's words, and the container's ``name``.

        Raises:
            EnvError: no client is there.
        """
        client, is_podman = container_client()
        name = f"trinity-sandbox-{secrets.token_hex(8)}"
        limits, user = session.limits, _user()
        seconds = str(math.ceil(limits.wall_s) + _LATER_S)
        argv = [
            *(client, "run", "--interactive", "--pull", "never", "--name", name),
            *("--label", LABEL, "--log-driver", "none", "--hostname", "sandbox"),
            *("--network", "none", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--user", f"{user[0]}:{user[1]}"),
            *(("--userns", "keep-id") if is_podman and os.getuid() else ()),
            *_limits(session),
            *_mounts(session),
            *(word for key, value in session.env.items() for word in ("--env", f"{key}={value}")),
            *("--entrypoint", "/bin/sh", self.image),
            *("-c", 'timeout -s KILL "$0" "$@"; exit $?', seconds, *command),
        ]
        return {"argv": argv, "name": name}

    def execute(self, session: Session, command: Sequence[str], *, stdin: IO[bytes]) -> Ended:
        """Run a command in a container of its own, which is removed by name in the end."""
        planned = self.plan(session, command)
        client, name = planned["argv"][0], planned["name"]
        _give(session.folder)
        try:
            ended = run_client(
                planned["argv"],
                env=client_environment(),
                stdin=stdin,
                folder=session.folder,
                limits=session.limits,
                stopped=session.stopped,
            )
            return ended if ended.reason else _as_inside(ended, client, name)
        finally:
            _remove(client, name)

    def python(self) -> tuple[str, tuple[Path, ...]]:
        """Return the image's Python, which needs no bind."""
        return "python3", ()

    @classmethod
    def problem(cls, image: str = "") -> str:
        """Return why this machine cannot run the image; "": it can. Tries it once."""
        return _tried(image or DEFAULT_IMAGE)


def _limits(session: Session) -> list[str]:
    limits, cpu = session.limits, math.ceil(session.limits.cpu_s)
    return [
        *("--pids-limit", str(limits.processes + 2), "--cpus", "1"),  # sh and timeout
        *("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)),
        *("--ulimit", f"cpu={cpu}:{cpu + 1}", "--ulimit", f"fsize={limits.file_bytes}"),
        *(
            "--ulimit",
            f"nofile={limits.open_files}",
            "--ulimit",
            "core=0",
            "--shm-size",
            str(limits.tmp_bytes),
        ),
        *("--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.tmp_bytes},mode=1777"),
    ]


def _mounts(session: Session) -> list[str]:
    pairs = [one if isinstance(one, tuple) else (one, str(one)) for one in session.binds]
    mounts = [(str(session.folder), _INSIDE, ""), *((str(a), b, ",readonly") for a, b in pairs)]
    words = ["--workdir", _INSIDE]
    for source, at, how in mounts:
        if "," in source + at:
            raise EnvError(f"sandbox container: the path {source} has a comma. Rename it.")
        words += ["--mount", f"type=bind,src={source},dst={at}{how}"]
    return words


def _user() -> tuple[int, int]:
    """Return who commands are inside: this user, whose files they write, or nobody for root."""
    return (os.getuid(), os.getgid()) if os.getuid() else (_NOBODY, _NOBODY)


def _give(folder: Path) -> None:
    """Let commands write the folder, where root made it."""
    if not os.getuid():
        give_tree(folder, *_user())


def client_environment() -> Mapping[str, str]:
    """Return what a client is told of this process's variables."""
    return {name: os.environ[name] for name in _OF_CLIENT if name in os.environ}


@functools.cache
def container_client() -> tuple[str, bool]:
    """Return the program that answers, and whether it is podman.

    Raises:
        EnvError: none does.
    """
    problems = []
    for name in ("docker", "podman"):
        program = shutil.which(name)
        if program is None:
            problems.append(f"{name} is not installed")
            continue
        found = _called(program, "ps", "--quiet")
        if found.returncode == 0:
            version = _called(program, "--version").stdout.lower()
            return program, b"podman" in version
        problems.append(f"{name} does not answer: {_words(found.stderr)}")
    raise EnvError("; ".join(problems))


@functools.cache
def _tried(image: str) -> str:
    try:
        client, _ = container_client()
        if _called(client, "image", "inspect", image).returncode:
            return f"the image {image} is not there; run: {client} pull {image}"
        sandbox = ContainerSandbox(image)
        ended = sandbox.run(["python3", "-ISB", "here.py"], files={"here.py": "print('here')"})
    except (EnvError, ConfigError) as error:
        return str(error)
    return "" if ended.stdout.strip() == b"here" else _words(ended.stderr) or "it printed nothing"


def _as_inside(ended: Ended, client: str, name: str) -> Ended:
    """Return the end with what the daemon says of the container."""
    found = _called(client, "inspect", "--format", "{{json .State}}", name)
    if found.returncode:
        return _failed(ended, f"{_words(ended.stderr)} {_words(found.stderr)}".strip())
    state = json.loads(found.stdout)
    if str(state.get("StartedAt", "")).startswith(_NEVER_STARTED):
        return _failed(ended, _words(ended.stderr) or str(state.get("Error")))
    code = int(state["ExitCode"])
    code = 128 - code if code > 128 else code
    reasons = {-signal.SIGXCPU: "cpu_time", -signal.SIGXFSZ: "output"}
    # Not each runtime says it where the kernel killed a process below `sh`; nobody else does.
    is_oom = bool(state.get("OOMKilled")) or code == -signal.SIGKILL
    reason = "memory" if is_oom else reasons.get(code, "")
    return Ended(exit=code, stdout=ended.stdout, stderr=ended.stderr, reason=reason, failure="")


def _failed(ended: Ended, why: str) -> Ended:
    return Ended(exit=ended.exit, stdout=b"", stderr=ended.stderr, reason="", failure=why)


def _remove(client: str, name: str) -> None:
    """End a container and all its processes.

    Raises:
        EnvError: it may go on.
    """
    at_once = (
        ("--time", "0") if container_client()[1] else ()
    )  # podman waits 10 s for it to end by itself
    found = _called(client, "rm", "--force", *at_once, name)
    words = _words(found.stderr)
    if found.returncode and "no such container" not in words.lower():
        raise EnvError(f"the container {name} was not removed: {words}. Run: {client} rm -f {name}")


def _called(*words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            words, env=client_environment(), capture_output=True, timeout=_CALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, b"", str(error).encode())


def _words(text: bytes) -> str:
    return text.decode(errors="replace").strip()[-300:]
