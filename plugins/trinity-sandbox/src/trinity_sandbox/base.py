"""What a sandbox promises: commands over one folder, within limits, and nothing left of them."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from trinity.errors import ConfigError, EnvError

from trinity_sandbox.disk import is_nearly_full, kept_free
from trinity_sandbox.supervise import run_supervised
from trinity_sandbox.trees import empty_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trinity_sandbox.supervise import Ended

__all__ = ["CommandResult", "Limits", "Sandbox", "Session", "disk_is_full", "interpreter"]

logger = logging.getLogger("trinity.sandbox")

Bind = Path | tuple[Path, str]  # the path of both sides, or (on the host, inside)
_LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Of each command.

    Attributes:
        cpu_s: seconds of processor time, of each process and of all of them together.
        wall_s: seconds until all processes are ended.
        memory_bytes: address space of each process, and resident memory of all of them together.
        processes: processes and threads at one time.
        open_files: descriptors of each process.
        file_bytes: of each file that is written.
        tmp_bytes: of ``/tmp``, where the sandbox has one of its own.
        output_bytes: of stdout and of stderr.
        disk_bytes: of all files of the session's folder together, and of files that were deleted
            and are open; 0: no limit. A command is also ended where less than 256 MB, or a tenth of
            a smaller disk, are left on the disk.
    """

    cpu_s: float = 5.0
    wall_s: float = 15.0
    memory_bytes: int = 512 << 20
    processes: int = 32
    open_files: int = 64
    file_bytes: int = 16 << 20
    tmp_bytes: int = 64 << 20
    output_bytes: int = 1 << 20
    disk_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """How a command ended.

    Attributes:
        exit: the exit code, or minus the number of the signal that ended it.
        stdout: at most ``Limits.output_bytes``.
        stderr: likewise.
        reason: the limit that ended it: ``wall_time``, ``cpu_time``, ``memory``, ``processes``,
            ``output`` or ``disk``; ``disk_full``: the disk has hardly anything left, and the files
            of the session are within their limit; ``stopped``: ``Session.stop`` did; "": none did.
    """

    exit: int
    stdout: bytes
    stderr: bytes
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Commands over one writable folder, each in a process tree of its own.

    Attributes:
        folder: on the host; the commands' working directory.
        binds: what commands may read: a path of the host, or one and where commands see it.
        places: an absolute path -> the part of ``folder`` that commands see and write there, in
            place of the folder itself; only where ``Sandbox.has_places``.
        workdir: the working directory, where there are places.
        stopped: set by ``stop``.
    """

    sandbox: Sandbox
    folder: Path
    limits: Limits
    binds: tuple[Bind, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    stopped: threading.Event = field(default_factory=threading.Event, repr=False)

    def stop(self) -> None:
        """End the command that runs, and each one that comes; from any thread."""
        self.stopped.set()

    def run(self, command: Sequence[str], *, stdin: bytes = b"") -> CommandResult:
        """Run one command to its end, and end what it started.

        Args:
            command: a program and its arguments.
            stdin: what it can read.

        Raises:
            EnvError: the sandbox could not be built, so that nothing ran.
        """
        with tempfile.TemporaryFile() as words:
            words.write(stdin)
            words.seek(0)
            ended = self.sandbox.execute(self, command, stdin=words)
        if ended.failure:
            raise EnvError(f"sandbox {self.sandbox.name}: no command could run: {ended.failure}")
        return CommandResult(
            exit=ended.exit, stdout=ended.stdout, stderr=ended.stderr, reason=ended.reason
        )


class Sandbox(ABC):
    """Runs commands where they can read and write only what they are given.

    What each promises stands in ``docs/explanation/sandboxes.md``.
    """

    name: ClassVar[str] = ""
    has_places: ClassVar[bool] = False

    @abstractmethod
    def plan(self, session: Session, command: Sequence[str]) -> dict[str, Any]:
        """Return what the launcher must do: see ``launcher.py`` for its keys.

        Args:
            session: the folder, the binds and the limits.
            command: what to run.
        """

    def execute(self, session: Session, command: Sequence[str], *, stdin: IO[bytes]) -> Ended:
        """Run what :meth:`plan` says to its end.

        Args:
            session: the folder, the binds and the limits.
            command: what to run.
            stdin: a file that the command reads.
        """
        setup = {"limits": asdict(session.limits)} | self.plan(session, command)
        program, _ = interpreter()
        return run_supervised(
            [program, "-ISB", str(_LAUNCHER), json.dumps(setup)],
            stdin=stdin,
            folder=session.folder,
            limits=session.limits,
            stopped=session.stopped,
        )

    def python(self) -> tuple[str, tuple[Path, ...]]:
        """Return a Python that commands can run, and what must be bound for it."""
        return interpreter()

    @classmethod
    @abstractmethod
    def problem(cls) -> str:
        """Return why this machine cannot run it, in a few words; "": it can. Tries it once."""

    def run(
        self,
        command: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        binds: Sequence[Bind] = (),
        limits: Limits | None = None,
        stdin: bytes = b"",
    ) -> CommandResult:
        """Run one command in a session of its own.

        Args:
            command: a program and its arguments.
            files: name -> text, written into the working directory first.
            binds: files and folders of the host that the command may read, at the same paths.
            limits: None: the defaults.
            stdin: what it can read.

        Raises:
            EnvError: the sandbox could not be built, or ``limits.disk_bytes`` is set and the disk
                has hardly anything left before the command starts.
        """
        with self.open(files=files, binds=binds, limits=limits) as session:
            if session.limits.disk_bytes and is_nearly_full(session.folder):
                raise EnvError(disk_is_full(self.name, session.folder.parent))
            return session.run(command, stdin=stdin)

    @contextmanager
    def open(
        self,
        *,
        files: Mapping[str, str] | None = None,
        binds: Sequence[Bind] = (),
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        places: Mapping[str, str] | None = None,
        workdir: str = "/",
    ) -> Iterator[Session]:
        """Open a session; its folder is deleted at the end.

        Args:
            files: name -> text, written into the folder.
            binds: files and folders of the host that commands may read.
            limits: of each command; None: the defaults.
            env: all of the commands' environment.
            places: see ``Session``.
            workdir: see ``Session``.

        Raises:
            ConfigError: there are places, and this sandbox shows files at their own paths alone.
        """
        if places and not self.has_places:
            raise ConfigError(
                f"sandbox {self.name} cannot show files at paths such as {next(iter(places))}: "
                f"use sandbox: bwrap (Debian: apt-get install bubblewrap)."
            )
        with tempfile.TemporaryDirectory(
            prefix="trinity-sandbox-", ignore_cleanup_errors=True
        ) as folder:
            for name, text in (files or {}).items():
                Path(folder, name).write_text(text, encoding="utf-8", errors="surrogatepass")
            try:
                yield Session(
                    sandbox=self,
                    folder=Path(folder),
                    limits=limits or Limits(),
                    binds=tuple(binds),
                    env=env or {},
                    places=places or {},
                    workdir=workdir,
                )
            finally:
                _empty(folder)


def _empty(folder: str) -> None:
    """Delete what commands wrote: ``TemporaryDirectory`` recurses, and may follow a link."""
    try:
        empty_tree(folder)
    except OSError as error:
        logger.warning("what a command wrote into %s is not all deleted: %s", folder, error)


def disk_is_full(sandbox: str, folder: Path) -> str:
    """Return a message: a command was not run, or not to its end, for want of disk."""
    return (
        f"sandbox {sandbox}: less than {kept_free(folder) >> 20} MB are left on the disk of "
        f"{folder}. Free some, or set TMPDIR to another disk."
    )


def interpreter() -> tuple[str, tuple[Path, ...]]:
    """Return this Python, without its packages, and what a sandbox must bind for it."""
    program = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    prefixes = {Path(sys.base_prefix).resolve(), Path(sys.base_exec_prefix).resolve()}
    return str(program), tuple(one for one in prefixes if one.parts[:2] != ("/", "usr"))
