"""Whose a noted cluster is: of the note, and of the process that listens where it points.

Ray's temporary folder is everybody's. Whoever writes an address there would be given the runs of
all others on the machine, and their token.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTENS = "0A"  # the state in the system's table
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class Owners:
    """Looks up who owns a file and who listens at an address, as user ids."""

    me: int = os.getuid() if hasattr(os, "getuid") else 0

    def of_file(self, file: int) -> int:
        """Return the owner of an open file."""
        return os.fstat(file).st_uid

    def others_may_write(self, file: int) -> bool:
        """Return whether another user may change an open file."""
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


def whose_else(note: int, address: str, *, owners: Owners | None = None) -> str:
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
    import sys

    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    turned = [word[::-1] if sys.byteorder == "little" else word for word in words]
    return b"".join(turned).hex().upper()
