"""What a container is started with, and that it is ended by its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trinity.common.sandbox import Limits, Session, sandbox_named
from trinity.errors import ConfigError, EnvError
from trinity_sandbox import container
from trinity_sandbox.container import ContainerSandbox

LIMITS = Limits(
    cpu_s=1.5,
    wall_s=7.2,
    memory_bytes=256 << 20,
    processes=16,
    file_bytes=1 << 20,
    tmp_bytes=32 << 20,
)
# A client that notes its words and answers as it is told; `run` reads what it is given.
CLIENT = """#!{python} -ISB
import os, sys, time
with open({log!r}, "a") as log:
    print("\\t".join(sys.argv[1:]), file=log)
word = sys.argv[1]
if word == "run":
    {run}
if word == "inspect":
    print({state!r})
if word == {fails!r}:
    sys.exit({words!r})
if word == "--version":
    print({name!r}, "version 1")
"""
STATE = '{{"StartedAt": "2026-01-01T00:00:00Z", "OOMKilled": {}, "ExitCode": {}, "Error": ""}}'
WELL = STATE.format("false", 0)


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Return what puts a client in front, and the words that it got."""
    log = tmp_path / "log"

    def put(*, name="docker", run="pass", state=WELL, fails="", words=""):
        program = tmp_path / name
        told = {"name": name, "run": run, "state": state, "fails": fails, "words": words}
        program.write_text(CLIENT.format(python=sys.executable, log=str(log), **told))
        program.chmod(0o755)
        return lambda: [line.split("\t") for line in log.read_text().splitlines()]

    monkeypatch.setenv("PATH", str(tmp_path))
    container.container_client.cache_clear()
    container._tried.cache_clear()
    yield put
    container.container_client.cache_clear()
    container._tried.cache_clear()


@pytest.mark.parametrize(("name", "uid"), [("docker", 0), ("docker", 1000), ("podman", 1000)])
def test_a_container_has_no_network_no_root_and_every_limit(client, monkeypatch, name, uid):
    client(name=name)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(os, "getgid", lambda: 100)
    session = Session(
        sandbox=ContainerSandbox("own:1"),
        folder=Path("/made/s"),
        limits=LIMITS,
        binds=(Path("/data"), (Path("/a"), "/b")),
        env={"WORD": "x y"},
    )

    planned = session.sandbox.plan(session, ["python3", "a.py"])

    program, *words = planned["argv"]
    assert Path(program).name == name
    assert words == [
        *("run", "--interactive", "--pull", "never", "--name", planned["name"]),
        *("--label", "org.trinity.sandbox", "--log-driver", "none", "--hostname", "sandbox"),
        *("--network", "none", "--read-only", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges"),
        *("--user", "65534:65534" if uid == 0 else "1000:100"),
        *(("--userns", "keep-id") if name == "podman" else ()),
        *("--pids-limit", "18", "--cpus", "1"),
        *("--memory", "268435456", "--memory-swap", "268435456"),
        *("--ulimit", "cpu=2:3", "--ulimit", "fsize=1048576"),
        *("--ulimit", "nofile=64", "--ulimit", "core=0", "--shm-size", "33554432"),
        *("--tmpfs", "/tmp:rw,nosuid,nodev,size=33554432,mode=1777"),
        *("--workdir", "/session", "--mount", "type=bind,src=/made/s,dst=/session"),
        *("--mount", "type=bind,src=/data,dst=/data,readonly"),
        *("--mount", "type=bind,src=/a,dst=/b,readonly"),
        *("--env", "WORD=x y", "--entrypoint", "/bin/sh", "own:1"),
        *("-c", 'timeout -s KILL "$0" "$@"; exit $?', "13", "python3", "a.py"),
    ]


def removed(calls) -> bool:
    """Return whether the container that was run is removed by its name, as the last call."""
    (run,) = [call for call in calls if call[0] == "run"]
    return calls[-1] == ["rm", "--force", run[run.index("--name") + 1]]


@pytest.mark.parametrize(
    ("run", "limits", "reason"),
    [
        ("time.sleep(60)", {"wall_s": 0.5}, "wall_time"),
        ("while True: print('x' * 9999)", {"output_bytes": 1000}, "output"),
        ("bytearray(64 << 20); time.sleep(0.3)", {"memory_bytes": 1 << 20, "processes": 0}, ""),
    ],
    ids=["deadline", "output", "limits are not the client's"],
)
def test_a_container_is_removed_by_its_name_however_it_ends(client, run, limits, reason):
    calls = client(run=run)

    outcome = ContainerSandbox().run(["python3"], limits=Limits(**limits))

    assert outcome.reason == reason
    assert removed(calls())


def test_folders_deeper_than_python_recurses_are_given_to_the_next_command(client):
    client()
    nest = "import os\nfor _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')"
    with ContainerSandbox().open() as session:
        subprocess.run([sys.executable, "-c", nest], cwd=session.folder, check=True)

        assert session.run(["python3"]).exit == 0


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (STATE.format("false", 3), (3, "")),
        (STATE.format("true", 137), (-9, "memory")),
        (STATE.format("false", 137), (-9, "memory")),
        (STATE.format("false", 152), (-24, "cpu_time")),
    ],
)
def test_the_daemon_says_how_a_command_ended(client, state, expected):
    client(run="print(input()); sys.exit(125)", state=state)

    outcome = ContainerSandbox().run(["cat"], stdin=b"seen\n")

    assert (outcome.exit, outcome.reason) == expected
    assert outcome.stdout == b"seen\n"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"run": "sys.exit('no such image')", "fails": "inspect"}, "no such image"),
        ({"run": "sys.exit('no sh')", "state": '{"StartedAt": "0001-01-01T00:00:00Z"}'}, "no sh"),
        ({"fails": "rm", "words": "daemon is gone"}, r"not removed: daemon is gone. Run: .* rm -f"),
    ],
)
def test_a_container_that_did_not_start_or_may_go_on_is_an_error(client, told, words):
    client(**told)

    with pytest.raises(EnvError, match=words):
        ContainerSandbox().run(["python3"])


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (None, "docker is not installed; podman is not installed"),
        ({"fails": "ps", "words": "Cannot connect"}, "docker does not answer: Cannot connect"),
        ({"fails": "image"}, r"the image own:1 is not there; run: .*docker pull own:1"),
    ],
)
def test_a_machine_that_runs_no_containers_is_told_the_remedy(client, told, words):
    if told is not None:
        client(**told)

    with pytest.raises(ConfigError, match=rf"{words}.*Install bubblewrap.*start docker"):
        sandbox_named("container:own:1")


def test_an_image_of_another_sandbox_is_refused():
    with pytest.raises(ConfigError, match=r"only container takes an image\. Write limits"):
        sandbox_named("limits:own:1")


@pytest.fixture
def real():
    if problem := ContainerSandbox.problem():
        pytest.skip(f"no container runs here: {problem}")
    return ContainerSandbox()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("open('a', 'w').write('x'); print(open('a').read())", (0, "", b"x\n")),
        ("open('/new', 'w')", (1, "", b"")),
        ("import os; assert os.getuid() and os.getgid()", (0, "", b"")),
        ("import socket; socket.create_connection(('1.1.1.1', 53), 1)", (1, "", b"")),
        ("import time; time.sleep(60)", (None, "wall_time", b"")),
        ("while True: pass", (-24, "cpu_time", b"")),
        ("x = b'x' * (1 << 30)", (-9, "memory", b"")),
    ],
)
def test_a_real_container_isolates_and_limits(real, source, expected):
    wall_s = 5 if "sleep" in source else 60
    limits = Limits(cpu_s=1, wall_s=wall_s, memory_bytes=64 << 20)

    outcome = real.run(["python3", "-ISB", "a.py"], files={"a.py": source}, limits=limits)

    exit_code, reason, stdout = expected
    assert (outcome.reason, outcome.stdout) == (reason, stdout)
    assert exit_code in {None, outcome.exit}
