"""A container of a rollout, which lives as long as the rollout.

exec --user USER: the agent's commands -> restart: nothing runs -> cp: tests -> exec: test.sh -> rm
"""

from __future__ import annotations

import math
import os
import posixpath
import secrets
import shlex
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import EnvError
from trinity_sandbox.base import CommandResult, Limits
from trinity_sandbox.container import LABEL, client_environment
from trinity_sandbox.supervise import Ended, run_client

from trinity_envs_harbor.containers import packed_file, packed_folder, unpacked_file
from trinity_envs_harbor.links import warn_links, without_links_out
from trinity_envs_harbor.workspace import warn_left_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity_sandbox.base import Sandbox

    from trinity_envs_harbor.containers import ContainerClient
    from trinity_envs_harbor.task import HarborTask
    from trinity_envs_harbor.workspace import Given, Workspace

__all__ = ["ContainerWorkspace", "PreparedImage"]

_ROOT = "0"
_LOGS = ("/logs/agent", "/logs/artifacts", "/logs/verifier")
_OUTPUT_BYTES = 4 << 20
_MOST_ARTIFACTS_MB = 256  # they are held in memory on their way to the verifier's container
_SPARE_S = 600.0  # beside all time limits, until a container whose run was killed ends by itself
_TICK_S = 5
_KILLED = 137  # the exit code of a process that SIGKILL ended
_PROCESSES = 256


@dataclass(frozen=True, kw_only=True)
class PreparedImage:
    """A task and its image.

    Attributes:
        digest: of the task's folder.
        user: of the image.
        client: docker or podman.
        has_network: commands reach the network.
    """

    task: HarborTask
    digest: str
    image: str
    client: ContainerClient
    user: str = _ROOT
    has_network: bool = False

    @contextmanager
    def workspace(
        self, sandbox: Sandbox | ContainerClient, *, stopped: threading.Event | None = None
    ) -> Iterator[ContainerWorkspace]:
        """Give a new container; it is removed at the end.

        Raises:
            EnvError: it could not be started, or may go on.
        """
        del sandbox
        name = f"trinity-harbor-{secrets.token_hex(8)}"
        with tempfile.TemporaryDirectory(prefix="trinity-harbor-") as folder:
            try:
                self.client.call(
                    "run", "--pull", "never", "--name", name, *self._options(), *self._idles()
                )
                made = ContainerWorkspace(self, name, Path(folder), stopped or threading.Event())
                made.begin()
                yield made
            finally:
                self.client.remove(name)

    def _options(self) -> list[str]:
        task = self.task
        memory = f"{task.memory_mb}m"
        cpus = min(task.cpus, os.cpu_count() or 1)  # docker refuses more than there are
        env = [word for one in task.env.items() for word in ("--env", "=".join(one))]
        return [
            *("--detach", "--label", LABEL, "--hostname", "sandbox"),
            *(() if self.has_network else ("--network", "none")),
            *("--memory", memory, "--memory-swap", memory, "--cpus", f"{cpus:g}"),
            *("--pids-limit", str(_PROCESSES), "--ulimit", "core=0", *env),
        ]

    def _idles(self) -> list[str]:
        """Return what the container does meanwhile: sh waits, for orphans too, and ends once."""
        limits = sum(one.agent_timeout_s * 2 + one.verifier_timeout_s for one in self.task.steps)
        ticks = math.ceil((limits + _SPARE_S) / _TICK_S)
        waits = f"i=0; while [ $i -lt {ticks} ]; do sleep {_TICK_S}; i=$((i+1)); done"
        return ["--user", _ROOT, "--entrypoint", "/bin/sh", self.image, "-c", waits]


class ContainerWorkspace:
    """A container that runs; see ``workspace.Workspace``.

    Args:
        prepared: what it is made of.
        name: of the container.
        folder: an empty one of this machine.
        stopped: ends what runs, once it is set.
    """

    def __init__(
        self, prepared: PreparedImage, name: str, folder: Path, stopped: threading.Event
    ) -> None:
        self._prepared, self._client = prepared, prepared.client
        self._name, self._folder, self._stopped = name, folder, stopped

    @property
    def workdir(self) -> str:
        """Return the working directory of the task, else of its image."""
        given = self._prepared.task.workdir
        return (
            given or self._client.call("exec", self._name, "/bin/sh", "-c", "pwd").decode().strip()
        )

    def begin(self) -> None:
        """Make the folders that each task has."""
        workdir = shlex.quote(self._prepared.task.workdir or "/")
        self._shell(f"mkdir -p {workdir} && {' && '.join(map(_emptied, _LOGS))}")

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        given: Given,
    ) -> CommandResult:
        """Run one command; what it leaves running goes on, unless it was ended by a limit."""
        words = [word for one in given.env.items() for word in ("--env", "=".join(one))]
        words += ["--workdir", self._prepared.task.workdir] if self._prepared.task.workdir else []
        ended = self._client_run(
            ["exec", "--user", given.user or self._prepared.user, *words, self._name, *command],
            timeout_s,
        )
        if ended.reason:
            self.end_processes()
        is_killed = ended.exit == _KILLED and not ended.reason
        reason = "memory" if is_killed else ended.reason  # nobody else sends SIGKILL
        # Of stderr there is what the client says: an agent that broke its container reads it.
        printed = ended.stdout + ended.stderr
        return CommandResult(exit=ended.exit, stdout=printed, stderr=b"", reason=reason)

    def end_processes(self) -> None:
        """Restart the container: its files stay, and nothing that a command started runs.

        An agent may have broken it so that it does not start again; then nothing runs either.

        Raises:
            EnvError: it may go on.
        """
        ended = self._client.tried("restart", "-t", "0", self._name)
        if ended.returncode:
            state = self._client.call("inspect", "--format", "{{.State.Running}}", self._name)
            if state.strip() != b"false":
                said = ended.stderr.decode(errors="replace").strip()[-500:]
                raise EnvError(f"container {self._name} was not restarted: {said}")

    def empty(self, path: str) -> None:
        """Make an empty folder."""
        self._shell(_emptied(path))

    def copy_in(self, source: Path, path: str) -> None:
        """Copy what a folder of the host holds."""
        self._unpack(packed_folder(source, path), "/")

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        self._unpack(packed_file(path, text), "/")

    def read(self, path: str) -> bytes | None:
        """Return what a file holds."""
        ended = self._client_run(["cp", f"{self._name}:{path}", "-"], timeout_s=60.0)
        if ended.reason == "output":
            raise EnvError(f"{path} has more than {_OUTPUT_BYTES} bytes.")
        if not ended.exit:
            return unpacked_file(ended.stdout, path)
        said = ended.stderr.decode(errors="replace").strip()
        if "could not find" in said.lower() or "could not be found" in said:
            return None
        raise EnvError(f"{path} cannot be read: {said[-500:]}")

    @contextmanager
    def another(self) -> Iterator[ContainerWorkspace]:
        """Give a new container of the same image."""
        with self._prepared.workspace(self._client, stopped=self._stopped) as other:
            yield other

    def hand_over(self, paths: Sequence[str], other: Workspace) -> None:
        """Copy files and folders that are there; nothing of them is written to this machine."""
        assert isinstance(other, ContainerWorkspace)
        most_mb = min(self._prepared.task.storage_mb, _MOST_ARTIFACTS_MB)
        left, out = most_mb << 20, list[str]()
        for path in map(posixpath.normpath, paths):
            limits = Limits(wall_s=600.0, output_bytes=left)
            ended = self._client_run(["cp", f"{self._name}:{path}", "-"], limits=limits)
            if ended.reason:
                warn_left_out(self._prepared.task.name, path, most_mb)
                break
            if not ended.exit:
                left -= len(ended.stdout)
                above = posixpath.dirname(path) or "/"
                packed, links = without_links_out(ended.stdout, above, path)
                out += links
                if packed:
                    other._shell(f"mkdir -p {shlex.quote(above)}")
                    other._unpack(packed, above)
        warn_links(self._prepared.task.name, out)

    def stop(self) -> None:
        """End the command that runs, and each one that comes."""
        self._stopped.set()

    def _unpack(self, packed: bytes, at: str) -> None:
        self._client.call("cp", "-", f"{self._name}:{at}", stdin=packed)

    def _shell(self, script: str) -> None:
        """Run a script of ours as root."""
        self._client.call("exec", "--user", _ROOT, self._name, "/bin/sh", "-c", script)

    def _client_run(
        self, words: list[str], timeout_s: float = 60.0, *, limits: Limits | None = None
    ) -> Ended:
        """Run the client within limits of time and output."""
        given = limits or Limits(wall_s=timeout_s, output_bytes=_OUTPUT_BYTES)
        with tempfile.TemporaryFile() as nothing:
            return run_client(
                [self._client.program, *words],
                env=client_environment(),
                stdin=nothing,
                folder=self._folder,
                limits=given,
                stopped=self._stopped,
            )


def _emptied(path: str) -> str:
    at = shlex.quote(path)
    return f"rm -rf {at} && mkdir -p {at} && chmod 777 {at}"
