"""The sandboxes that are built in, and what each asks of the machine."""

from __future__ import annotations

import functools
import os
import platform
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.errors import EnvError

from trinity_sandbox.base import Limits, Sandbox, Session, interpreter
from trinity_sandbox.seccomp import filter_for, knows_this_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BwrapSandbox", "LandlockSandbox", "LimitsSandbox"]

_INSIDE = "/session"
_SYSTEM = ("/usr", "/etc/ld.so.cache", "/etc/alternatives")
_LINKED = ("/bin", "/sbin", "/lib", "/lib64")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_FOREIGN_USERS = (1_500_000_000, 1 << 28)  # first, number: of nobody's on any machine


class LimitsSandbox(Sandbox):
    """Limits of processor time, memory, files and processes, and nothing else: no isolation.

    A program reads every file that this user can read, and reaches the network.
    """

    name: ClassVar[str] = "limits"

    def plan(self, session: Session, command: Sequence[str]) -> dict[str, Any]:
        """Return the command with limits alone."""
        return {"argv": list(command), "env": dict(session.env)}

    @classmethod
    def problem(cls) -> str:
        """Return "": POSIX has these limits."""
        return ""


class LandlockSandbox(Sandbox):
    """Landlock, a filter of system calls, and limits: needs Linux 6.12, and no program.

    A command reads the system's programs and what it is given, writes its folder alone, changes no
    file's mode, owner or times, opens no socket, and sends no signal outside. ``/tmp`` is its
    folder's ``tmp``.
    """

    name: ClassVar[str] = "landlock"

    def plan(self, session: Session, command: Sequence[str]) -> dict[str, Any]:
        """Return the command with paths, a filter and limits."""
        tmp = session.folder / "tmp"
        tmp.mkdir(exist_ok=True)
        read = [*_SYSTEM, *_LINKED, *(str(source) for source, _ in _pairs(session))]
        return {
            "argv": list(command),
            **({"real_uid": _foreign_user()} if os.getuid() == 0 else {}),
            "env": {"TMPDIR": str(tmp), **session.env},
            "landlock": {
                "read": [path for path in read if Path(path).exists()],
                "write": [str(session.folder), *_DEVICES],
            },
            "seccomp": filter_for(has_namespaces=False).hex(),
            "seccomp_for": "self",
        }

    @classmethod
    def problem(cls) -> str:
        """Return why Landlock cannot be used here."""
        if sys.platform != "linux" or not knows_this_machine():
            return f"it needs Linux on x86_64 or aarch64, this is {platform.platform()}"
        return _tried(cls)


class BwrapSandbox(Sandbox):
    """bubblewrap: all namespaces, a filter of system calls, and limits.

    A command sees the system's programs, what it is given, its folder at ``/session``, a ``/tmp``,
    ``/proc`` and ``/dev`` of its own, and no network. Root drops to a user that owns nothing.
    """

    name: ClassVar[str] = "bwrap"
    has_places: ClassVar[bool] = True

    def plan(self, session: Session, command: Sequence[str]) -> dict[str, Any]:
        """Return the command inside bubblewrap."""
        is_root = os.getuid() == 0
        binds = _pairs(session)
        outside = [session.folder, *(source for source, _ in binds)]
        shown = [f"/tmp/{place}" for place in range(len(outside))]
        sources = shown if is_root else [str(path) for path in outside]
        argv = [
            *_profile(session.limits),
            *_readable(sources[1:], binds),
            *_writable(session, sources[0], [to for _, to in binds]),
            *("--remount-ro", "/"),
            *(word for name, value in session.env.items() for word in ("--setenv", name, value)),
            *("--", *command),
        ]
        own = {"mounts": [str(path) for path in outside], "owned": shown[0]}
        return {
            "argv": argv,
            **(own | {"uid": _foreign_user()} if is_root else {}),
            "seccomp": filter_for(has_namespaces=True).hex(),
            "seccomp_for": "argv",
        }

    @classmethod
    def problem(cls) -> str:
        """Return why bubblewrap cannot be used here."""
        if shutil.which("bwrap") is None:
            return "the program bwrap is not installed"
        if not knows_this_machine():
            return f"its filter knows x86_64 and aarch64, this is {platform.machine()}"
        return _tried(cls)


def _pairs(session: Session) -> list[tuple[Path, str]]:
    """Return each bind: on the host, and where a command sees it."""
    return [one if isinstance(one, tuple) else (one, str(one)) for one in session.binds]


def _readable(sources: Sequence[str], binds: Sequence[tuple[Path, str]]) -> list[str]:
    pairs = zip(sources, binds, strict=True)
    return [word for source, (_, at) in pairs for word in ("--ro-bind", source, at)]


def _writable(session: Session, folder: str, bound: list[str]) -> list[str]:
    """Return the mounts of what is written; none holds another one, nor a bind.

    A command could put a link in the way of a mount below what it writes.
    """
    if not session.places:
        return ["--bind", folder, _INSIDE, "--chdir", _INSIDE]
    for place in session.places:
        for path in (*bound, *session.places):
            if path != place and Path(path).is_relative_to(place):
                raise EnvError(f"a sandbox shows {path} below {place}, which commands write.")
    words = []
    for place, part in session.places.items():
        words += ["--bind", f"{folder}/{part}", place]
    return [*words, "--chdir", session.workdir]


def _foreign_user() -> int:
    """Return a user of a command's own, so that a limit of processes counts no others."""
    first, number = _FOREIGN_USERS
    return first + secrets.randbelow(number)


def _profile(limits: Limits) -> list[str]:
    links: list[str] = []
    for path in _LINKED:
        if Path(path).is_symlink():
            links += ["--symlink", os.readlink(path), path]
        elif Path(path).exists():
            links += ["--ro-bind", path, path]
    return [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-all", "--unshare-user", "--disable-userns"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--uid", "65534", "--gid", "65534", "--hostname", "sandbox"),
        *(word for path in _SYSTEM for word in ("--ro-bind-try", path, path)),
        *links,
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(limits.tmp_bytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", str(limits.tmp_bytes), "--tmpfs", "/tmp"),
        *("--json-status-fd", "{status}", "--seccomp", "{seccomp}"),
    ]


@functools.cache
def _tried(cls: type[Sandbox]) -> str:
    program, binds = interpreter()
    try:
        outcome = cls().run([program, "-ISBc", "print('here')"], binds=binds)
    except EnvError as error:
        return str(error)
    is_there = outcome.stdout.strip() == b"here"
    return "" if is_there else outcome.stderr.decode(errors="replace").strip()[-200:]
