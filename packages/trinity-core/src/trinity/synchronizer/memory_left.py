"""How much memory this process may still take.

    /proc/meminfo                            of the machine
    /sys/fs/cgroup/GROUP/memory.max, ...     of the container (Linux's cgroups, version 2)

The system gives out what it does not have, and ends a process that writes to it later. So who needs
much asks before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILES = ("inactive_file", "active_file")  # copies of what a disk has: dropped for who needs room


def bytes_left(*, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes that the machine and this process's container have left; None: none says.

    Args:
        proc: where the kernel tells about processes.
        cgroups: where it tells about containers.
    """
    found = [*_of_machine(proc / "meminfo"), *_of_groups(proc / "self/cgroup", cgroups)]
    return min(found, default=None)


def _of_machine(meminfo: Path) -> Iterator[int]:
    kib = _numbers(meminfo).get("MemAvailable:")
    if kib is not None:
        yield 1024 * kib


def _of_groups(own: Path, cgroups: Path) -> Iterator[int]:
    """Give what is left of each limit: a group is within all that are above it."""
    line = next((each for each in _text(own).splitlines() if each.startswith("0::")), None)
    if line is None:
        return
    group = cgroups / line.removeprefix("0::").lstrip("/")
    for folder in (group, *group.parents):
        limit, used = _text(folder / "memory.max"), _text(folder / "memory.current")
        if limit.isdigit() and used.isdigit():  # "max": none
            stat = _numbers(folder / "memory.stat")
            files = sum(stat.get(name, 0) for name in _FILES)
            yield max(0, int(limit) - int(used) + files)
        if folder == cgroups:
            return


def _numbers(path: Path) -> dict[str, int]:
    words = [line.split() for line in _text(path).splitlines()]
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _text(path: Path) -> str:
    """Return what a file says; empty: it is not there, or not for this process."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
