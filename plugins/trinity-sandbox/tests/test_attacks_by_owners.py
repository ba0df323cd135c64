"""What the kernel lets a user do to files and processes of its own, and a program does not do."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from .conftest import ran, refused

SYSTEM_CALLS = """
import ctypes, fcntl, os, resource, struct
libc = ctypes.CDLL(None, use_errno=True)
def called(number, *arguments):
    found = libc.syscall(number, *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), 'Error')
    return found
"""


@pytest.mark.parametrize(
    "attack",
    [
        "os.chmod(PATH, 0o666)",
        "os.chmod(os.path.dirname(PATH), 0o777)",
        "called(452, -100, PATH.encode(), 0o666, 0)  # fchmodat2",
        "os.chown(PATH, -1, os.getegid())",
        "os.lchown(PATH, -1, os.getegid())",
        "os.utime(PATH, (1, 1))",
        "os.setxattr(PATH, 'user.a', b'1')",
        "os.removexattr(PATH, 'user.kept')",
        "called(469, -100, PATH.encode(), bytes(24), 24, 0)  # file_setattr",
        "os.fchmod(os.open(BOUND, os.O_RDONLY), 0o666)",
        "os.fchown(os.open(BOUND, os.O_RDONLY), -1, os.getegid())",
        "os.utime(os.open(BOUND, os.O_RDONLY), (1, 1))",
        "os.setxattr(os.open(BOUND, os.O_RDONLY), 'user.a', b'1')",
        "fcntl.ioctl(os.open(BOUND, os.O_RDONLY), 0x40086602, struct.pack('l', 64))  # chattr +d",
    ],
)
def test_what_a_file_of_the_user_is_stays(sandbox, tmp_path, attack):
    path, bound = tmp_path / "own" / "path", tmp_path / "given" / "bound"
    for file in (path, bound):
        file.parent.mkdir()
        file.write_text("x")
        file.chmod(0o600)
        os.setxattr(file, "user.kept", b"1")
    before = [kept(file) for file in (path, bound, path.parent)]
    names = f"PATH, BOUND = {str(path)!r}, {str(bound)!r}\n"

    outcome = refused(sandbox, f"{SYSTEM_CALLS}{names}{attack}\nprint('through')", binds=[bound])
    if sandbox.name == "landlock":  # and not for want of such a file or call
        assert b"Error: [Errno 1] " in outcome.stderr

    assert [kept(file) for file in (path, bound, path.parent)] == before


def test_no_name_of_a_file_is_told(sandbox, tmp_path):
    start = f"{SYSTEM_CALLS}X, PATH = os.uname().machine == 'x86_64', {str(tmp_path)!r}.encode()\n"
    inotify = "called(254 if X else 27, called(294 if X else 26, 0), PATH, 0x100)"
    fanotify = "called(300 if X else 262, 0xC00, 0)"
    fanotify = f"called(301 if X else 263, {fanotify}, 1, 0x100, -100, PATH)"
    for attack in (inotify, fanotify):
        refused(sandbox, f"{start}{attack}\nprint('through')")


def kept(file: Path) -> tuple[object, ...]:
    found = file.stat()
    return found.st_mode, found.st_uid, found.st_gid, found.st_mtime, os.listxattr(file)


@pytest.mark.parametrize(
    "attack",
    [
        "resource.prlimit(PID, resource.RLIMIT_NOFILE, (7, 7))",
        "os.setpriority(os.PRIO_PROCESS, PID, 19)",
        "os.sched_setaffinity(PID, {min(os.sched_getaffinity(0))})",
        "os.sched_setscheduler(PID, os.SCHED_BATCH, os.sched_param(0))",
        "called(251 if os.uname().machine == 'x86_64' else 30, 1, PID, 3 << 13)  # ioprio_set",
    ],
)
def test_how_another_process_runs_stays(sandbox, attack):
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            before = ways(other.pid)

            refused(sandbox, f"{SYSTEM_CALLS}PID = {other.pid}\n{attack}\nprint('through')")

            assert ways(other.pid) == before
        finally:
            other.kill()


def test_a_program_changes_how_it_runs_itself(sandbox):
    source = """
    import os
    before = os.nice(0)
    os.nice(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    print(os.nice(0) - before, len(os.sched_getaffinity(0)), os.sched_getscheduler(0) == 3)
    """

    assert ran(sandbox, source).stdout == b"1 1 True\n"


def ways(pid: int) -> tuple[object, ...]:
    return (
        resource.prlimit(pid, resource.RLIMIT_NOFILE),
        os.getpriority(os.PRIO_PROCESS, pid),
        os.sched_getaffinity(pid),
        os.sched_getscheduler(pid),
    )


def test_a_program_may_lower_its_own_limits(sandbox):
    source = "from resource import *\nsetrlimit(RLIMIT_NOFILE, (9, 9))\nprint(getrlimit(7))"

    assert ran(sandbox, source).stdout == b"(9, 9)\n"


def test_no_memory_or_queue_that_processes_share_outlives_them(sandbox):
    before = shared()
    source = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.shmget(0x7a11, 4096, 0o1600)
    libc.semget(0x7a11, 1, 0o1600)
    libc.msgget(0x7a11, 0o1600)
    print("tried")
    """

    assert ran(sandbox, source).stdout == b"tried\n"

    assert shared() == before


def shared() -> list[str]:
    found = []
    for kind in ("shm", "sem", "msg"):
        lines = Path("/proc/sysvipc", kind).read_text().splitlines()
        found += [line for line in lines if str(0x7A11) in line]
    return found


def test_programs_that_the_user_starts_meanwhile_take_none_of_a_command_s_processes(sandbox):
    source = """
    import os, time
    time.sleep(0.6)
    for _ in range(8):
        if not os.fork():
            time.sleep(0.1)
            os._exit(0)
    print("ran")
    """
    outcomes, done = [], threading.Event()
    waits = threading.Thread(target=lambda: outcomes.append(ran(sandbox, source)))
    waits.start()
    others = [threading.Timer(0.3, done.wait) for _ in range(100)]
    for other in others:
        other.start()
    waits.join()
    done.set()
    for other in others:
        other.join()

    assert (outcomes[0].stdout, outcomes[0].exit) == (b"ran\n", 0)


@pytest.mark.skipif(os.getuid() != 0, reason="this user is a plain one: the tests above are its")
def test_a_plain_user_is_safe_from_the_same_attacks():
    here = Path(__file__)
    packages = [path for path in sys.path if "python3" not in path or "-packages" in path]
    told = {"PYTHONPATH": os.pathsep.join(packages), "PATH": os.environ["PATH"]}
    plain = {"user": 12345, "group": 12345, "extra_groups": [], "env": told}
    program = "/usr/bin/python3"  # this one may lie in root's home
    try:
        words = [program, "-c", "import pytest, trinity_sandbox.kinds"]
        imports = subprocess.run(words, check=False, **plain)
    except OSError as error:
        pytest.skip(f"no Python for another user: {error}")
    if imports.returncode:
        pytest.skip("another user cannot read the packages of this Python")
    files = [here, here.with_name("test_attacks_on_disk.py")]
    words = [program, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]

    ended = subprocess.run(
        words, cwd=here.parents[3], check=False, stdout=subprocess.PIPE, text=True, **plain
    )

    assert ended.returncode == 0, ended.stdout
