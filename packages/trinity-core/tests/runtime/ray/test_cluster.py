"""The Ray of a run is joined or started, seen by nobody else, and left as it was found.

Each test is a user's script in a process of its own: what it leaves behind is looked at from here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SCRIPT = """
import os, signal, sys, time
from trinity.common.config import Config
from trinity.runtime.ray.cluster import cluster

if "first" in sys.argv:
    import ray
    ray.init(os.environ.pop("RAY_ADDRESS"), log_to_driver=False, logging_level="ERROR")
signal.signal(signal.SIGTERM, handler := lambda number, frame: None)
with cluster(Config(), say=print) as found:
    import ray

    @ray.remote(num_cpus=0, name="room", namespace=found.namespace)
    class Worker:
        def end(self):
            os._exit(1)

        def token(self):
            return os.environ.get("RAY_AUTH_TOKEN", "")

    worker = Worker.remote()
    print("own" if found.is_own else "joined", ray.get(worker.token.remote()) or "-", flush=True)
    if "hold" in sys.argv:
        time.sleep(60)
    try:
        ray.get(worker.end.remote())
    except ray.exceptions.RayError:
        time.sleep(1.5)  # Ray would print by now
    other = Worker.options(name="other", lifetime="detached").remote()
    ray.get(other.token.remote())
    reserved = ray.util.placement_group([{"memory": 1.0}], name=found.namespace + "/1a/workers")
    ray.get(reserved.ready())
    assert signal.getsignal(signal.SIGTERM) is handler
    if "fail" in sys.argv:
        raise SystemExit(3)
if not ray.is_initialized():  # a thread that was left behind calls Ray, and starts none
    try:
        ray.put(1)
    except Exception:
        assert not ray.is_initialized()
print("still there" if ray.is_initialized() else "left")
if "first" in sys.argv:
    print(ray.util.list_named_actors(all_namespaces=True))
    print({group["state"] for group in ray.util.placement_group_table().values()})
"""


@pytest.fixture
def script(tmp_path):
    """Return a function that starts the script; all its processes are ended after the test."""
    file, started = tmp_path / "script.py", []
    file.write_text(SCRIPT)
    short = tempfile.mkdtemp(prefix="ray")  # the name of a socket has 107 letters at most

    def start(*words, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        env |= {"MARK": str(tmp_path), "HOME": str(tmp_path), "RAY_TMPDIR": short}
        env |= variables
        command = [sys.executable, str(file), *words]
        started.append(
            subprocess.Popen(command, env=env, stdout=-1, stderr=subprocess.STDOUT, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
    for pid in family(tmp_path):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(short, ignore_errors=True)


def family(mark):
    """Return the processes that carry the test's mark in their environment."""
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _has(p, mark)]


def _has(process, mark):
    try:
        return f"MARK={mark}\0".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def listening(pid):
    """Return the local addresses, in hex, that a process listens at."""
    sockets = {os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir() if f.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].rpartition(":")[0])
    return found


def soon(is_so, *, timeout_s=240.0):
    end = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < end:
        time.sleep(0.2)
    return is_so()


def test_our_own_ray_is_quiet_has_a_token_and_ends_with_the_run(script, tmp_path):
    process = script("fail")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 3
    line, about = output.splitlines()  # and not a word of Ray's, though an actor died
    assert line.startswith("started Ray on this machine in ")
    assert re.fullmatch("own [0-9a-f]{64}", about)
    assert soon(lambda: not family(tmp_path))
    assert not [name for name in os.listdir("/dev/shm") if "plasma" in name]
    assert not (tmp_path / ".ray").exists()  # the token was written nowhere


@pytest.mark.acceptance
def test_our_own_ray_dies_with_a_killed_driver(script, tmp_path):
    process = script("hold")
    assert process.stdout.readline().startswith("started")
    assert process.stdout.readline().startswith("own")
    process.kill()
    # Ray's agents look for their parent every minute: tests/e2e/test_ray_interrupt.py waits for it
    assert soon(lambda: all(map(is_agent, family(tmp_path))))
    assert not [name for name in os.listdir("/dev/shm") if "plasma" in name]


def is_agent(pid):
    """Return whether a process is one of Ray's agents, or has ended."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True
    return b"agent" in command.lower()


@pytest.mark.parametrize("words", [pytest.param((), marks=pytest.mark.acceptance), ("first",)])
def test_a_cluster_that_is_there_is_joined_and_left_alive(script, ray_cluster, words):
    process = script(*words, **joining(ray_cluster))
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert output.startswith(f"joined the Ray cluster at {ray_cluster.address}\njoined ")
    if words:  # a Ray that the script itself had connected stays so, without our workers and places
        assert output.endswith("still there\n[]\n{'REMOVED'}\n")
    else:
        assert output.endswith("left\n")
    import ray

    assert ray.get(ray.remote(lambda: 7).options(num_cpus=0).remote(), timeout=30) == 7


def joining(ray_cluster):
    token = {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH")}
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # for the script's own ray.init
    return {"RAY_ADDRESS": ray_cluster.address, "HOME": os.environ["HOME"], **token, **loopback}


WAITING = """
import sys, time
from trinity.common.config import Config
from trinity.errors import TrinityError
from trinity.runtime.ray.cluster import cluster
from trinity.runtime.ray.worker_handle import WorkerHandle

try:
    with cluster(Config(), say=print):
        import ray

        @ray.remote(num_cpus=0)
        class Worker:
            def call(self, method):
                time.sleep(600)

        worker = Worker.remote()
        ray.get(worker.__ray_ready__.remote())
        pending = WorkerHandle(worker, "trainer").start("train_step")
        print("waiting", flush=True)
        pending.result()
except TrinityError as error:
    print(type(error).__name__, error)
    sys.exit(1)
"""


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("raylet", "the raylet of this machine"),
        ("gcs_server", "the head (GCS)"),
    ],
)
def test_ray_listens_on_the_loopback_and_who_waits_for_a_room_hears_that_it_was_killed(
    script, tmp_path, program, name
):
    (tmp_path / "script.py").write_text(WAITING)
    process = script()
    assert process.stdout.readline().startswith("started")
    assert process.stdout.readline() == "waiting\n"
    heard = set().union(*(listening(pid) for pid in family(tmp_path)))
    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    assert heard
    assert heard <= loopback
    (pid,) = (p for p in family(tmp_path) if _program(p) == program)
    os.kill(pid, signal.SIGKILL)

    output, _ = process.communicate(timeout=60)  # what is promised

    assert process.returncode == 1
    assert output.splitlines() == [
        f"RayLostError the Ray that this run started has lost {name}. Run the same command again: "
        "it goes on from the last checkpoint."
    ]
    assert soon(lambda: all(map(is_agent, family(tmp_path))))


def _program(pid):
    """Return the name of the file that a process was started from."""
    return Path(Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()).name
