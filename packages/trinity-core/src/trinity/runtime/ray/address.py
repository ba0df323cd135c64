"""Where the Ray of a run is, whose it is, and what the environment must hold to speak to it.

Ray's temporary folder is everybody's. Whoever writes an address there would be given the runs of
all others on the machine, and their token.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity.common.config import Config
    from trinity.runtime.ray.cluster import HeadNode

_LISTENS = "0A"  # the state in the system's table
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class Owners:
    """Looks up who owns a file and who listens at an address, as user ids."""

    me: int = os.getuid() if hasattr(os, "getuid") else 0

    def of_file(self, file: int) -> int:
        return os.fstat(file).st_uid

    def others_may_write(self, file: int) -> bool:
        return bool(os.fstat(file).st_mode & stat.S_IWOTH)

    def of_listener(self, address: str) -> set[int] | None:
        """Return whose sockets listen at a host:port of this machine.

        Returns:
            The user ids, none where nothing listens; None: the system does not tell, or the address
            is another machine's.
        """
        tables = [Path(path) for path in _TABLES if Path(path).exists()]
        host, _, port = address.rpartition(":")
        if not tables or not _is_of_this_machine(host.strip("[]")):
            return None
        ends = _ends(host.strip("[]"), int(port))
        return {uid for table in tables for end, uid in _listeners(table) if end in ends}


def foreign_owner(note: int, address: str, *, owners: Owners | None = None) -> str:
    """Return what shows that a noted cluster may be another user's; empty: it is this user's.

    Where the system does not tell who listens, as on another machine, the note alone decides.

    Args:
        note: the open file that names the cluster.
        address: host:port of its head, as the file says.
        owners: looks up whose things are.
    """
    owners = owners or Owners()
    owner = owners.of_file(note)
    if owner != owners.me:
        return f"the note belongs to user {owner}"
    if owners.others_may_write(note):
        return "other users may change the note"
    listeners = owners.of_listener(address)
    if listeners is None or listeners == {owners.me}:
        return ""
    if not listeners:
        return "no process of this machine listens there"
    strangers = ", ".join(str(uid) for uid in sorted(listeners - {owners.me}))
    return f"a process of user {strangers} listens there"


def _is_of_this_machine(host: str) -> bool:
    """Return whether a host's address is one of this machine's, which alone can be bound."""
    for family, kind, protocol, _, where in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(where)
        except OSError:
            continue
        return True
    return False


def _listeners(table: Path) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield address and port, as the table writes them, and the user of each listening socket."""
    for line in table.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTENS:
            host, _, port = fields[1].partition(":")
            yield (host, int(port, 16)), int(fields[7])


def _ends(host: str, port: int) -> set[tuple[str, int]]:
    """Return each entry of the table by which a host:port can be reached."""
    ends = {("0" * 8, port), ("0" * 32, port)}
    for family, *_, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        packed = socket.inet_pton(family, str(where[0]))
        ends.add((_in_words(packed), port))
        if family == socket.AF_INET:
            ends.add((_in_words(b"\0" * 10 + b"\xff" * 2 + packed), port))
    return ends


def _in_words(packed: bytes) -> str:
    """Return an address as the table writes it: words of the machine's byte order."""
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    turned = [word[::-1] if sys.byteorder == "little" else word for word in words]
    return b"".join(turned).hex().upper()


REACH_TIMEOUT_S = 5.0

# What our own cluster does without, and how long its processes wait for a head that is gone: then
# Ray ends each of them by force, the driver too, which has to have said before what is lost.
_QUIET = {
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "25",
}


def cluster_address(
    config: Config, *, say: Callable[[str], None] = lambda _: None, owners: Owners | None = None
) -> str:
    """Return the host:port of the cluster to join; empty: there is none, start one.

    A cluster that the user names is joined; one that is only noted on this machine, where anyone
    can leave a note, if it is this user's.

    Args:
        config: ``cluster.ray_address``.
        say: is told of a noted cluster that is another user's.
        owners: looks up whose a noted cluster is; None: asks the system.

    Raises:
        TrinityError: the one that is named cannot be reached.
    """
    named = os.environ.get("RAY_ADDRESS", "")
    source = "RAY_ADDRESS"
    if not named:
        named, source = config.cluster.ray_address, "cluster.ray_address"
    if named == "local":
        return ""
    if named not in {"", "auto"}:
        _refuse_unreachable(named, source=source)
        return named
    return _noted_address(say, owners)


def node_address() -> str:
    """Return the address by which other machines of the cluster reach this process."""
    import ray

    util: Any = ray.util  # untyped
    return str(util.get_node_ip_address())


def use_own_interface() -> None:
    """Let gloo and NCCL use the interface with this node's address, NCCL if none is named to both.

    Where the system does not tell, each chooses by itself: gloo by the host's name.
    """
    from trinity.trainer.rendezvous import interface_of

    if interface := interface_of(node_address()):
        if "GLOO_SOCKET_IFNAME" not in os.environ:  # who names gloo's may have ruled this one out
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # and none that begins so
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _noted_address(say: Callable[[str], None], owners: Owners | None) -> str:
    """Return what ``ray start --head`` noted on this machine, if it is alive and this user's."""
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    try:
        held, address = _read_note(note)
        with held:  # whose it is, is asked of the file that was read
            if not _is_address(address) or _unreachable(address):
                return ""
            why = foreign_owner(held.fileno(), address, owners=owners)
    except (OSError, UnicodeDecodeError):
        return ""
    if why:
        say(
            f"the Ray cluster at {address}, which {note} names, is not joined: {why}. To join it, "
            f"set cluster.ray_address: {address}; this run starts its own Ray."
        )
        return ""
    return address


def _read_note(note: Path) -> tuple[BinaryIO, str]:
    """Return the open note and what it says; a link is not followed."""
    handle = os.open(note, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    held = os.fdopen(handle, "rb")
    return held, held.read().decode("utf-8").strip()


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and "://" not in text and port.isdecimal() and int(port) < 1 << 16


def _refuse_unreachable(address: str, *, source: str) -> None:
    remedy = (
        "Start it with ray start --head, correct the address, or leave it out: "
        "a run without one starts its own Ray."
    )
    if not _is_address(address):
        raise TrinityError(f"{source} is {address!r}, not a host:port of a Ray head. {remedy}")
    why = _unreachable(address)
    if why:
        raise TrinityError(f"no Ray cluster answers at {address} ({source}): {why}. {remedy}")


def _unreachable(address: str) -> str:
    """Return why nothing can be reached there; empty: something listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def ray_settings(head: HeadNode | None) -> Mapping[str, str]:
    """Return what must stand in the environment while Ray runs.

    Args:
        head: of the cluster to join; None: our own is started.
    """
    settings = {"RAY_USAGE_STATS_ENABLED": "0"}
    if head is None or head.is_here:
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # its word for: bind the loopback only
    if head is not None:
        return settings | {"RAY_AUTH_MODE": "token" if head.asks_for_token else "disabled"}
    settings["RAY_AUTH_MODE"] = "token"
    if not _has_token():
        settings["RAY_AUTH_TOKEN"] = _token()
    return settings | {name: value for name, value in _QUIET.items() if name not in os.environ}


def _has_token() -> bool:
    in_environment = any(os.environ.get(f"RAY_AUTH_TOKEN{end}") for end in ("", "_PATH"))
    return in_environment or Path("~/.ray/auth_token").expanduser().is_file()


@cache
def _token() -> str:
    """Return the token of this process's own clusters; it is written nowhere."""
    return secrets.token_hex(32)
