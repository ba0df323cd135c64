"""Docker or podman, by its command line: images of tasks, and what containers are given."""

from __future__ import annotations

import io
import subprocess
import tarfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, EnvError
from trinity_sandbox.container import client_environment, container_client

from trinity_envs_harbor.task import digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from trinity_envs_harbor.task import HarborTask

__all__ = ["ContainerClient", "packed_file", "packed_folder", "unpacked_file"]

_CALL_S = 120.0  # for the client to answer
_TAIL = 2000  # characters of what a build printed, in a failure
_MOST_BYTES = 1 << 20  # of a file that is read
_REPOSITORY = "localhost/trinity-harbor"
_PROGRAM, _FILE = 0o755, 0o644
_building = threading.Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerClient:
    """A client that answers.

    Attributes:
        program: docker or podman.
        is_podman: which of them.
    """

    program: str
    is_podman: bool
    name: str = "container"

    @classmethod
    def found(cls) -> ContainerClient:
        """Return the client of this machine.

        Raises:
            ConfigError: none answers.
        """
        try:
            program, is_podman = container_client()
        except EnvError as error:
            raise ConfigError(
                f"sandbox container: {error}. Start docker or podman, or use sandbox: bwrap."
            ) from error
        return cls(program=program, is_podman=is_podman)

    def call(self, *words: str, stdin: bytes = b"", timeout_s: float = _CALL_S) -> bytes:
        """Return what the client prints.

        Raises:
            EnvError: it fails, with its last words.
        """
        ended = self.tried(*words, stdin=stdin, timeout_s=timeout_s)
        if ended.returncode:
            said = (ended.stdout + ended.stderr).decode(errors="replace").strip()[-_TAIL:]
            raise EnvError(f"{self.program} {words[0]} failed (code {ended.returncode}): {said}")
        return bytes(ended.stdout)

    def tried(
        self, *words: str, stdin: bytes = b"", timeout_s: float = _CALL_S
    ) -> subprocess.CompletedProcess[bytes]:
        """Return how the client ended.

        Raises:
            EnvError: it did not, in that time.
        """
        try:
            return subprocess.run(
                [self.program, *words],
                input=stdin,
                env=client_environment(),
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EnvError(f"{self.program} {words[0]} did not end in {timeout_s:g} s.") from None

    def image_of(self, task: HarborTask, tasks: Path | None = None) -> str:
        """Return a task's image: pulled, or built of its Dockerfile, where it is not there.

        Args:
            task: whose image.
            tasks: the folder of tasks; an image is named for the files that links lead to there.

        Raises:
            EnvError: that failed.
        """
        folder = task.folder / "environment"
        is_built = (folder / "Dockerfile").is_file()
        digest = digest_of(folder, tasks or task.folder)
        name = f"{_REPOSITORY}:{digest[:32]}" if is_built else task.image
        with _building:
            if not self.tried("image", "inspect", name).returncode:
                return name
            words = ["build", "--tag", name, str(folder)] if is_built else ["pull", name]
            self.call(*words, timeout_s=task.build_timeout_s)
        return name

    def user_of(self, image: str) -> str:
        """Return the user of an image; one that names none has root's number."""
        said = self.call("image", "inspect", "--format", "{{.Config.User}}", image)
        return said.decode().strip() or "0"

    def remove(self, container: str) -> None:
        """End a container, at once.

        Raises:
            EnvError: it may go on.
        """
        at_once = ("--time", "0") if self.is_podman else ()
        self.call("rm", "--force", *at_once, container)


def packed_folder(source: Path, path: str) -> bytes:
    """Return what a folder holds as a tar of paths below ``/``; its ``*.sh`` are programs."""
    packed = io.BytesIO()
    at = path.strip("/")

    def owned_by_root(one: tarfile.TarInfo) -> tarfile.TarInfo:
        one.uid = one.gid = 0
        one.uname = one.gname = ""
        if one.isfile() and one.name.endswith(".sh"):
            one.mode = _PROGRAM
        return one

    with tarfile.open(fileobj=packed, mode="w") as tar:
        for entry in sorted(source.iterdir()):
            name = f"{at}/{entry.name}" if at else entry.name
            tar.add(entry, arcname=name, filter=owned_by_root)
    return packed.getvalue()


def packed_file(path: str, text: str) -> bytes:
    """Return a tar with one file that each user may read."""
    packed, content = io.BytesIO(), text.encode(errors="surrogatepass")
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo(path.strip("/"))
        info.size, info.mode = len(content), _FILE
        tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def unpacked_file(packed: bytes, path: str) -> bytes:
    """Return the file that a tar begins with.

    Raises:
        EnvError: it begins with something else, or with a file of more than 1 MB.
    """
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        first = tar.next()
        if first is None or not first.isreg():
            raise EnvError(f"{path} is no file.")
        if first.size > _MOST_BYTES:
            raise EnvError(f"{path} has {first.size} bytes, more than {_MOST_BYTES}.")
        content: Any = tar.extractfile(first)  # Any: None for what is no file
        return bytes(content.read())
