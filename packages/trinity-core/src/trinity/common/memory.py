"""Read how much memory a process may use, how much is used, and whether the kernel ended one.

The machine's is in ``/proc/meminfo``, a container's in the files of its cgroup (version 1 or 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.value_checks import chain_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LACK_OF_MEMORY", "Memory", "address_space_remark", "memory", "num_oom_kills"]

LACK_OF_MEMORY = (
    "the system killed a process for lack of memory: lower trainer.max_token_len_per_gpu, "
    "explorer.runner_per_model or the model's size"
)
GB = 10**9
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NONE = 2**60  # how version 1 says that there is no limit, at least
_FILES = {  # by the version: copies of what a disk has, dropped under pressure
    1: ("total_inactive_file", "total_active_file"),
    2: ("inactive_file", "active_file"),
}
_FULL = (
    *("memoryerror", "allocate memory", "bad_alloc", "out of memory", "start new thread"),
    *("failed to map segment", "resource temporarily unavailable"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """How much of a limit is used, in bytes."""

    used: int
    limit: int

    @property
    def left(self) -> int:
        """Return how much is left."""
        return max(0, self.limit - self.used)

    def __str__(self) -> str:
        return f"{self.used / GB:.1f} of {self.limit / GB:.1f} GB"


def memory(least: str = "left", *, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Memory | None:
    """Return the limit that leaves least, of the machine and the containers; None: none says.

    Args:
        least: what is least, ``left`` or ``limit``: then however much of it is used.
        proc: where the kernel tells about processes.
        cgroups: where it tells about containers.
    """
    found = [*_of_machine(proc / "meminfo"), *_of_groups(proc / "self/cgroup", cgroups)]
    return min(found, key=lambda one: getattr(one, least), default=None)


def num_oom_kills(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Return how many processes the kernel has ended for lack of memory, where it tells."""
    for _, folder in _groups(proc / "self/cgroup", cgroups):
        for name in ("memory.events", "memory.oom_control"):
            if (count := _numbers(folder / name).get("oom_kill")) is not None:
                return count
    return _numbers(proc / "vmstat").get("oom_kill", 0)


def address_space_remark(error: BaseException) -> str:
    """Return the limit of ``ulimit -v`` as a sentence, if an error may come of it; else ""."""
    import resource  # not on every system

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return ""
    said = " ".join(f"{type(one).__name__} {text_of(one)}" for one in chain_of(error)).lower()
    if not any(sign in said for sign in _FULL):
        return ""
    return (
        f" The limit on the memory of a process is {limit / GB:.1f} GB here (ulimit -v "
        f"{limit // 1024}): raise it, ulimit -v unlimited, then run the same command."
    )


def _of_machine(meminfo: Path) -> Iterator[Memory]:
    kib = _numbers(meminfo)
    left, total = kib.get("MemAvailable:"), kib.get("MemTotal:")
    if left is not None and total is not None:
        yield Memory(used=1024 * (total - left), limit=1024 * total)


def _of_groups(own: Path, cgroups: Path) -> Iterator[Memory]:
    names = {1: ("limit_in_bytes", "usage_in_bytes"), 2: ("max", "current")}
    for version, folder in _groups(own, cgroups):
        limit, used = (_text(folder / f"memory.{name}") for name in names[version])
        if limit.isdigit() and used.isdigit() and int(limit) < _NONE:  # "max": none
            stat = _numbers(folder / "memory.stat")
            files = sum(stat.get(name, 0) for name in _FILES[version])
            yield Memory(used=max(0, int(used) - files), limit=int(limit))


def _groups(own: Path, cgroups: Path) -> Iterator[tuple[int, Path]]:
    """Give the process's cgroup and all above it: it is within the limits of each."""
    for line in _text(own).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number != "0" and "memory" not in controllers.split(","):
            continue
        version, root = (2, cgroups) if number == "0" else (1, cgroups / "memory")
        group = root / name.lstrip("/")
        for folder in (group, *group.parents):
            yield version, folder
            if folder == root:
                break


def _numbers(path: Path) -> dict[str, int]:
    words = [line.split() for line in _text(path).splitlines()]
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _text(path: Path) -> str:
    """Return what a file says; empty: it is not there, or not for this process."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
