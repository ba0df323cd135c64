"""What a program inside a sandbox tries, and what comes of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from trinity.common.sandbox import sandbox_named
from trinity.errors import ConfigError
from trinity_sandbox import supervise

from .conftest import BINDS, LIMITS, PROGRAM, command_lines, ran, refused


def test_a_program_that_does_no_harm_runs_and_reads_its_stdin(sandbox):
    command = [PROGRAM, "-ISBc", "import json, threading; print(input() * 2)"]

    outcome = sandbox.run(command, binds=BINDS, stdin=b"ab")

    assert (outcome.exit, outcome.stdout, outcome.reason) == (0, b"abab\n", "")


def test_commands_of_a_session_see_what_the_ones_before_wrote(sandbox):
    with sandbox.open(binds=BINDS, env={"WORD": "seen"}) as session:
        session.run([PROGRAM, "-ISBc", "open('a', 'w').write('1')"])
        told = session.run(
            [PROGRAM, "-ISBc", "import os; print(open('a').read(), os.environ['WORD'])"]
        )

    assert told.stdout == b"1 seen\n"


def test_a_file_of_the_user_cannot_be_read_also_not_by_a_link(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("through")
    for source in (
        f"print(open({str(secret)!r}).read())",
        f"import os; os.symlink({str(secret)!r}, 'link'); print(open('link').read())",
        f"import os; os.link({str(secret)!r}, 'link'); print(open('link').read())",
        f"import os; print(os.listdir({str(tmp_path)!r}), 'through')",
        "print(open('/etc/passwd').read(), 'through')",
        f"print(open('/proc/{os.getpid()}/environ').read(), 'through')",
        f"print(open('/proc/{os.getpid()}/root{secret}').read())",
    ):
        refused(sandbox, source)
    assert secret.read_text() == "through"


def test_nothing_outside_the_folder_is_written(sandbox, tmp_path):
    for target in (tmp_path / "new", "/usr/new", "/etc/new", Path(PROGRAM).parent / "new"):
        outcome = ran(sandbox, f"open({str(target)!r}, 'w').write('x')")

        assert outcome.exit != 0
        assert not Path(target).exists()


def test_no_network_is_reached_and_no_socket_of_this_machine(sandbox, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0trinity-test")
        local.listen()
        port = tcp.getsockname()[1]
        refused(
            sandbox,
            f"import socket; socket.create_connection(('127.0.0.1', {port})); print('through')",
        )
        refused(
            sandbox,
            "import socket\ns = socket.socket(socket.AF_UNIX)\n"
            "s.connect('\\0trinity-test')\nprint('through')",
        )
        tcp.settimeout(0.05)
        with pytest.raises(TimeoutError):
            tcp.accept()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0.05)
        port = udp.getsockname()[1]
        ran(
            sandbox,
            f"import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {port}))",
        )
        with pytest.raises(TimeoutError):
            udp.recv(1)


def test_nothing_is_sent_to_a_socket_of_this_machine(sandbox, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
        local.bind(str(tmp_path / "s"))
        refused(
            sandbox,
            "import socket\none, other = socket.socketpair(type=socket.SOCK_DGRAM)\n"
            f"one.sendto(b'x', {str(tmp_path / 's')!r})\nprint('through')",
        )
        local.settimeout(0.05)
        with pytest.raises(TimeoutError):
            local.recv(1)


def test_a_program_has_pairs_of_sockets_for_itself(sandbox):
    source = """
    import asyncio, socket
    one, other = socket.socketpair()
    one.sendall(b"x")
    asyncio.run(asyncio.sleep(0))
    print(other.recv(1))
    """

    assert ran(sandbox, source).stdout == b"b'x'\n"


def test_other_processes_are_neither_seen_nor_signalled(sandbox):
    with subprocess.Popen(["sleep", "60"]) as other:
        for number in (0, signal.SIGTERM):
            refused(sandbox, f"import os; os.kill({other.pid}, {int(number)}); print('through')")
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    "call",
    [
        "unshare(0x10000000)",
        "ptrace(0, 0, 0, 0)",
        "mount(b'none', b'/', None, 16384, None)",
        "setns(0, 0)",
        "syscall(NEW, 0x10000011, 0, 0, 0, 0)",  # clone with a user namespace
        "memfd_create(b'a', 0)",
        "shmget(0, 4096, 0o1600)",
        "semget(0, 32000, 0o1600)",
        "msgget(0, 0o1600)",
        "prctl(4, 0, 0, 0, 0)",  # PR_SET_DUMPABLE
    ],
)
def test_the_kernel_is_asked_for_nothing_that_breaks_out(sandbox, call):
    library = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    library += "NEW = 56 if os.uname().machine == 'x86_64' else 220\n"
    source = f"{library}print(libc.{call}, ctypes.get_errno())"

    assert ran(sandbox, source).stdout == b"-1 1\n"  # EPERM


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        ("while True: pass", {"cpu_time"}),
        ("import time; time.sleep(60)", {"wall_time"}),
        ("import os; [os.fork() for _ in range(3)]\nwhile True: pass", {"cpu_time"}),
        ("x = b'x' * 10**9", {""}),  # MemoryError
        (
            "import os, time\nfor _ in range(3): os.fork()\nx = b'x' * 10**8; time.sleep(9)",
            {"memory"},
        ),
        ("import os, time\nwhile os.fork() or 1: pass", {"", "processes", "cpu_time", "memory"}),
        ("while True: print('x' * 10**5)", {"output"}),
        ("import sys; sys.stderr.write('x' * 10**7)", {"output"}),
        ("open('big', 'wb').write(bytes(10**7))", {""}),  # OSError
    ],
    ids=["loop", "sleep", "loops", "memory", "memory of all", "forks", "output", "stderr", "file"],
)
def test_a_limit_ends_what_passes_it(sandbox, source, reasons):
    began = time.monotonic()

    outcome = ran(sandbox, source, wall_s=1 if reasons == {"wall_time"} else LIMITS.wall_s)

    assert outcome.exit != 0
    assert outcome.reason in reasons
    assert len(outcome.stdout) <= LIMITS.output_bytes
    assert time.monotonic() - began < LIMITS.wall_s + 3


def test_nothing_is_left_of_a_process_that_hid(sandbox, tmp_path):
    name = f"hidden-{os.getpid()}"
    outcome = ran(
        sandbox,
        f"""
        import os, time
        if os.fork() == 0:
            try:
                os.setsid()
            except PermissionError:
                pass
            if os.fork() == 0:
                os.execv({PROGRAM!r}, ['{name}', '-ISBc', 'import time; time.sleep(60)'])
            os._exit(0)
        time.sleep(0.3)
        """,
    )

    assert (outcome.exit, outcome.reason) == (0, "")
    end = time.monotonic() + 3
    while found := processes_named(name):
        assert time.monotonic() < end, found
        time.sleep(0.02)


def processes_named(name: str) -> list[int]:
    return [pid for pid, line in command_lines().items() if line.startswith(name.encode())]


def test_nothing_is_written_after_the_end_of_a_command(sandbox):
    source = """
    import os
    for _ in range(8):
        if not os.fork():
            break
    for number in range(10**9):
        open(f"{os.getpid()}-{number}", "w").close()
    """
    for _ in range(5):
        with sandbox.open(binds=BINDS, limits=replace(LIMITS, wall_s=0.5, cpu_s=60)) as session:
            assert session.run([PROGRAM, "-ISBc", textwrap.dedent(source)]).reason == "wall_time"
            written = len(os.listdir(session.folder))
            time.sleep(0.05)
            assert len(os.listdir(session.folder)) == written


def test_a_process_whose_first_thread_ended_is_waited_for(caplog, monkeypatch):
    monkeypatch.setattr(supervise, "_MOST_TO_DIE_S", 0.1)
    source = "import ctypes, threading; threading.Thread(target=threading.Event().wait).start(); "
    source += "print('now', flush=True); ctypes.CDLL(None).pthread_exit(None)"
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"now\n"
            while " Z " not in Path(f"/proc/{process.pid}/stat").read_text():  # of its first thread
                time.sleep(0.01)
            supervise._wait_until_gone(process.pid, None)
        finally:
            process.kill()
    assert "has processes that did not end: they may still write" in caplog.text
    caplog.clear()
    supervise._wait_until_gone(process.pid, None)
    assert not caplog.text


def test_a_program_inherits_no_variable_no_descriptor_and_cannot_forge_its_end(sandbox):
    outcome = ran(
        sandbox,
        """
        import os
        print(sorted(set(os.environ) & {'PATH', 'HOME', 'OPENAI_API_KEY'}), flush=True)
        for number in range(3, 64):
            try:
                os.write(number, b'{"exit-code": 0}')
                print('wrote to', number)
            except OSError:
                pass
        os._exit(7)
        """,
    )

    assert (outcome.exit, outcome.stdout) == (7, b"[]\n")


def test_a_killed_driver_leaves_no_command_behind(sandbox):
    name = f"left-{os.getpid()}"
    source = f"""
    from trinity.common.sandbox import sandbox_named
    from trinity.common.sandbox.base import interpreter
    program, binds = interpreter()
    again = "import os; os.execv({PROGRAM!r}, ['{name}', '-ISBc', 'import time; time.sleep(60)'])"
    sandbox_named({sandbox.name!r}).run([program, "-ISBc", again], binds=binds)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(source)]) as driver:
        end = time.monotonic() + 20
        while not processes_named(name):
            assert time.monotonic() < end
            time.sleep(0.02)
        driver.kill()
    while found := processes_named(name):
        assert time.monotonic() < end, found
        time.sleep(0.02)


def test_a_machine_without_isolation_is_told_the_remedy(monkeypatch):
    from trinity_sandbox import container, kinds

    for cls in (kinds.BwrapSandbox, container.ContainerSandbox, kinds.LandlockSandbox):
        monkeypatch.setattr(cls, "problem", classmethod(lambda cls: "it is missing"))

    with pytest.raises(
        ConfigError, match=r"bwrap: it is missing; container: it is missing; landlock: it.*docker"
    ):
        sandbox_named()
    assert sandbox_named("limits").name == "limits"
