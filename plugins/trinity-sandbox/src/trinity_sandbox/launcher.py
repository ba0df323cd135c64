"""Restrict this process as its argument says, then become the command.

Run as ``python -ISB launcher.py JSON``, with the standard library and ``trees``. The keys of the
JSON: ``limits`` (fields of ``base.Limits``), ``status_fd``, ``argv``, ``env``, ``uid`` (a user
without processes to become; 0: none), ``mounts`` (folders that this user cannot reach, handed over
in ``/tmp`` as 0, 1, ...), ``owned`` (a folder that it is given), ``real_uid`` (root keeps its
files, and is counted as this user), ``landlock`` (``read`` and ``write``: paths), and
``seccomp``: the filter in hexadecimal, with ``seccomp_for`` ``self`` or ``argv``.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import struct
import sys

TYPE_CHECKING = False  # what is imported here delays each command: no typing, no pathlib
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

__all__ = ["main"]

_libc = ctypes.CDLL(None, use_errno=True)

_NO_NEW_PRIVS, _SUBREAPER, _PDEATHSIG, _SECUREBITS, _SECCOMP = 38, 36, 1, 28, 22
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # of Landlock, on every machine
_CAPSET = {"x86_64": 126, "aarch64": 91}
_ALL_FILES = (1 << 16) - 1  # each right of Landlock's fifth version
_OF_FILES = 0b1100000000000111  # those that a file can have: execute, write, read, truncate, ioctl
_READ = 0b1101  # execute, read a file, read a folder
_TO_SPARE = 4096  # processes that other programs of a user may start meanwhile


def main(setup: dict[str, Any]) -> None:  # Any: JSON
    """Never returns: it becomes the command, or ends with what failed in the status."""
    try:
        if sys.platform == "linux":
            _checked(_libc.prctl(_SUBREAPER, 1, 0, 0, 0), "prctl")
        trees = _trees() if setup.get("uid") else None  # before /tmp is hidden
        _mount(setup.get("mounts", []))
        _limit(setup["limits"])
        ruleset = _ruleset(setup["landlock"]) if "landlock" in setup else None
        if trees is not None:
            _become(setup["uid"], setup["owned"], trees)
        if uid := setup.get("real_uid"):
            os.setresuid(uid, 0, 0)  # whose processes are counted; root's files stay readable
        _limit_processes(setup)
        argv = _with_filter(setup)
        if ruleset is not None:
            _restrict(ruleset)
        if setup.get("seccomp_for") == "self":
            _filter(bytes.fromhex(setup["seccomp"]))
        if setup.get("real_uid"):
            _stand_guard()
        os.set_inheritable(setup["status_fd"], setup.get("seccomp_for") == "argv")
        os.execve(argv[0], argv, setup.get("env", {}))
    except Exception as error:  # noqa: BLE001 - an exit code would be taken for the command's
        os.write(setup["status_fd"], f"failed: {str(error) or repr(error)}".encode())
        os._exit(1)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _limit(limits: dict[str, Any]) -> None:
    cpu = math.ceil(limits["cpu_s"])
    for which, soft, hard in (
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_AS, limits["memory_bytes"], limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(which, (soft, hard))


def _limit_processes(setup: dict[str, Any]) -> None:
    """Limit the user's processes to the command's, where the user is this command's own.

    Another user has other processes, which come and go: the limit is far above all that run now,
    and who waits for the command counts its processes. Root has no such limit.
    """
    most = setup["limits"]["processes"] + 2  # of bubblewrap
    if not (setup.get("uid") or setup.get("real_uid")):
        with open("/proc/loadavg", "rb") as file:
            most += int(file.read().split()[3].partition(b"/")[2]) + _TO_SPARE
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _mount(sources: list[str]) -> None:
    """Show folders at ``/tmp/0``, ``/tmp/1``, ... in mounts of this process's own."""
    if not sources:
        return
    _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
    _checked(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount /")
    held = [os.open(source, os.O_PATH) for source in sources]
    _checked(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"mode=0755"), "mount /tmp")
    for place, (source, handle) in enumerate(zip(sources, held, strict=True)):
        at, here = f"/tmp/{place}", f"/proc/self/fd/{handle}"
        os.mkdir(at) if os.path.isdir(here) else open(at, "x").close()
        told = _libc.mount(here.encode(), at.encode(), None, _MS_BIND | _MS_REC, None)
        _checked(told, source)


def _trees() -> ModuleType:
    """Return the module beside this file, which ``-I`` does not let be imported."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from trinity_sandbox import trees

    return trees


def _become(uid: int, owned: str, trees: ModuleType) -> None:
    trees.give_tree(owned, uid, uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _with_filter(setup: dict[str, Any]) -> list[str]:
    """Return the command, with file descriptors for bubblewrap in place of their names."""
    argv: list[str] = setup["argv"]
    if setup.get("seccomp_for") != "argv":
        return argv
    handle = os.memfd_create("filter", 0)
    os.write(handle, bytes.fromhex(setup["seccomp"]))
    os.lseek(handle, 0, os.SEEK_SET)
    names = {"{seccomp}": str(handle), "{status}": str(setup["status_fd"])}
    return [names.get(word, word) for word in argv]


def _ruleset(paths: dict[str, list[str]]) -> int:
    """Return a Landlock ruleset: files by path, no TCP, no signals or sockets to others."""
    rights = struct.pack("QQQ", _ALL_FILES, 0b11, 0b11)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, rights, len(rights), 0), "landlock")
    for key, wanted in (("read", _READ), ("write", _ALL_FILES)):
        for path in paths[key]:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = wanted if os.path.isdir(path) else wanted & _OF_FILES
            rule = struct.pack("=Qi", allowed, handle)
            _checked(_libc.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"landlock {path}")
            os.close(handle)
    return ruleset


def _restrict(ruleset: int) -> None:
    """Restrict this process for good, and drop every capability."""
    _checked(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    if os.geteuid() == 0:
        _checked(_libc.prctl(_SECUREBITS, 0b11, 0, 0, 0), "prctl")  # root is nobody special
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock")
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.syscall(_CAPSET[os.uname().machine], header, none), "capset")
    _checked(_libc.prctl(_PDEATHSIG, 9, 0, 0, 0), "prctl")


def _stand_guard() -> None:
    """Return in a child, and wait for it here: its exec, as two users, forgets ``_PDEATHSIG``."""
    child = os.fork()
    if child == 0:
        return
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    _checked(_libc.prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0), "prctl")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        if -code in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:  # no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _filter(instructions: bytes) -> None:
    kept = ctypes.create_string_buffer(instructions, len(instructions))
    program = struct.pack("HxxxxxxP", len(instructions) // 8, ctypes.addressof(kept))
    _checked(_libc.prctl(_SECCOMP, 2, program, 0, 0), "seccomp")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
