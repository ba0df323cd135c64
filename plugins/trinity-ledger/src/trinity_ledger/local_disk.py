"""Refuse a file on a network's file system, where the locks of SQLite do not hold."""

from __future__ import annotations

from pathlib import Path

from trinity.errors import DataError

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "afs", "glusterfs")


def refuse_network(path: Path, *, mounts: Path = _MOUNTS) -> None:
    """Raise where the locks of SQLite do not hold.

    Raises:
        DataError: the file lies on a network's file system, or on one of a user's process.
    """
    kind = file_system_of(path, mounts=mounts)
    if kind.startswith(_NETWORK):
        raise DataError(
            f"{path} lies on {kind}, and SQLite locks do not hold on {kind}. Use PostgreSQL "
            f"(postgresql://USER@HOST/NAME) or a path on a local disk."
        )


def file_system_of(path: Path, *, mounts: Path = _MOUNTS) -> str:
    """Return the type of a path's file system; "" where the system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    target, longest, kind = path.absolute().resolve(), -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = Path(before.split()[4].replace("\\040", " "))
        if target.is_relative_to(mount) and len(mount.parts) >= longest:
            longest, kind = len(mount.parts), after.split()[0]
    return kind
