"""Two machines on one: network namespaces that a cable joins, each with a node of one Ray cluster.

``10.97.0.1`` is the head, and the machine that runs are started on; ``10.97.0.2`` has joined it.
They share files and nothing else, as the machines of a cluster do. A machine loses power as real
ones do: its cable is silent first, so that no process can take leave.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

NAMES = "trinity-host"
PORT = 6379  # of the head: the namespace is our own
START_S = 180.0
END_S = 20.0  # for processes that were killed
# A loopback that Ray was told to keep to reaches no other machine.
UNSET = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_ADDRESS", "RAY_AUTH_MODE")


def why_not() -> str:
    """Return why there cannot be two hosts here; empty: there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux: sudo python -m nox -s hosts"
    if shutil.which("ip") is None:
        return "the program ip is missing; on Debian: apt-get install iproute2"
    name = f"{NAMES}-{os.getpid()}-try"
    tried = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, timeout=20, check=False
    )
    if tried.returncode:
        return f"no network namespace can be made here: {tried.stderr.strip()}"
    _ip("netns", "delete", name)
    return ""


def short_folder() -> Path:
    """Return a new folder whose name leaves room for the names of sockets."""
    return Path(tempfile.mkdtemp(prefix="hosts-"))


@dataclass
class Host:
    """A machine: a network namespace with one address.

    Attributes:
        name: of the namespace.
        address: by which the other reaches it.
        env: of what is started there.
    """

    name: str
    address: str
    env: Mapping[str, str] = field(repr=False)

    def start(self, *command: str | Path, **options: object) -> subprocess.Popen[str]:
        """Begin a command there."""
        words = ["ip", "netns", "exec", self.name, *map(str, command)]
        return subprocess.Popen(words, env=dict(self.env), text=True, **options)  # type: ignore[call-overload,no-any-return]

    def run(self, *command: str | Path, timeout_s: float = START_S) -> str:
        """Return what a command printed there.

        Raises:
            RuntimeError: it failed.
        """
        ended = subprocess.run(
            ["ip", "netns", "exec", self.name, *map(str, command)],
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"{command} on {self.address}: {ended.stdout}")
        return ended.stdout

    def pids(self) -> list[int]:
        """Return its processes."""
        told = subprocess.run(
            ["ip", "netns", "pids", self.name],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return [int(word) for word in told.stdout.split()]

    def kill(self) -> int:
        """End all its processes at once, those too that start meanwhile; return how many."""
        killed: set[int] = set()
        limit = time.monotonic() + END_S
        while (alive := [pid for pid in self.pids() if not _is_zombie(pid)]) and (
            time.monotonic() < limit
        ):
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(alive)
            time.sleep(0.02)
        return len(killed)


@dataclass
class TwoHosts:
    """The two, and their cable.

    Attributes:
        head: has Ray's head; runs are started here.
        other: has joined.
    """

    head: Host
    other: Host

    def cut(self) -> None:
        """Cut the cable: packets are lost, nobody is told."""
        self._set("down")

    def mend(self) -> None:
        """Put the cable back."""
        self._set("up")

    def power_off(self) -> int:
        """Let the other machine lose its power; return how many processes it had."""
        self.cut()
        return self.other.kill()

    def _set(self, state: str) -> None:
        _ip("-n", self.head.name, "link", "set", "cable", state)
        if state == "up":  # routes do not survive
            _ip("-n", self.head.name, "route", "replace", "default", "via", self.other.address)


@contextmanager
def two_hosts(folder: Path) -> Iterator[TwoHosts]:
    """Give two machines without Ray; whatever ran on them is ended, also after a failure.

    Args:
        folder: is their temporary folder; short, as sockets lie below it.
    """
    _sweep()
    prefix = f"{NAMES}-{os.getpid()}-{secrets.token_hex(2)}"
    env = {name: value for name, value in os.environ.items() if name not in UNSET}
    env |= {
        "RAY_AUTH_TOKEN": secrets.token_hex(32),  # Ray wants one where none is forbidden
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    hosts = TwoHosts(Host(f"{prefix}-1", "10.97.0.1", env), Host(f"{prefix}-2", "10.97.0.2", env))
    pair = (hosts.head, hosts.other)
    # Who ends this process by a signal does not mean the machines to stay.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for host in pair:
            _ip("netns", "add", host.name)
        ends = [["name", "cable", "netns", host.name] for host in pair]
        _ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for host, peer in (pair, pair[::-1]):
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", host.name, "link", "set", device, "up")
            _ip("-n", host.name, "route", "add", "default", "via", peer.address)
        yield hosts
    finally:
        for host in pair:
            host.kill()
        for host in pair:
            with suppress(RuntimeError):  # it was not made
                _ip("netns", "delete", host.name)
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def left_of(hosts: TwoHosts) -> list[str]:
    """Return what is still there of both: namespaces, and processes that know their token."""
    pair = (hosts.head, hosts.other)
    found = [host.name for host in pair if host.name in _namespaces()]
    token = f"RAY_AUTH_TOKEN={hosts.head.env['RAY_AUTH_TOKEN']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if token in (process / "environ").read_bytes():
                found.append(f"process {process.name}")
    return found


def _sweep() -> None:
    """Remove what a test left that was itself killed."""
    for name in _namespaces():
        prefix, _, rest = name.rpartition(f"{NAMES}-")
        pid = rest.partition("-")[0]
        if not prefix and pid.isdecimal() and not Path("/proc", pid).exists():
            Host(name, "", {}).kill()
            _ip("netns", "delete", name)


def _namespaces() -> list[str]:
    told = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, timeout=20, check=True
    )
    return [line.split()[0] for line in told.stdout.splitlines() if line]


def start_head(hosts: TwoHosts, folder: Path) -> str:
    """Start Ray's head; return its address.

    Args:
        hosts: without Ray.
        folder: for Ray's sockets and logs.
    """
    words = ["--head", "--port", str(PORT), "--include-dashboard", "false"]
    _ray_start(hosts.head, *words, "--temp-dir", str(folder / "ray"))
    return f"{hosts.head.address}:{PORT}"


def join(hosts: TwoHosts, address: str) -> None:
    """Let the other machine join; it may have done so before, and lost its power since."""
    _ray_start(hosts.other, "--address", address)


def _ray_start(host: Host, *words: str) -> None:
    # As the page about Ray says: without the mode, a node that joins shows no token.
    program = ("env", "RAY_AUTH_MODE=token", "ray", "start", "--disable-usage-stats")
    room = ("--num-cpus", "3", "--object-store-memory", str(200 << 20))
    host.run(*program, "--node-ip-address", host.address, *room, *words)


def _ip(*words: str) -> None:
    ended = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if ended.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {ended.stderr.strip()}")


def _is_zombie(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path("/proc", str(pid), "status").read_text()
    except OSError:
        return True
