"""What a piece of code leaves open: threads, files, child processes."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Holdings", "what_stays"]

GRACE_S = 2.0  # for threads that are ending
PAUSE_S = 0.02
PROC = Path("/proc/self")  # where there is none, files and processes are not looked at


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """What this process holds at one moment."""

    threads: frozenset[threading.Thread]
    files: frozenset[str]  # "descriptor -> path"
    processes: frozenset[str]

    @classmethod
    def now(cls) -> Holdings:
        """Return what is held now."""
        gc.collect()
        return cls(
            threads=frozenset(threading.enumerate()), files=_open_files(), processes=_children()
        )


def what_stays(before: Holdings) -> str:
    """Return in words what is held now and was not before; an empty string if nothing."""
    limit = time.monotonic() + GRACE_S
    while True:
        words = _words(before, Holdings.now())
        if not words or time.monotonic() > limit:
            return words
        time.sleep(PAUSE_S)


def _words(before: Holdings, now: Holdings) -> str:
    threads = sorted(thread.name for thread in now.threads - before.threads)
    files = sorted(now.files - before.files)
    processes = sorted(now.processes - before.processes)
    parts = [
        f"{what} {', '.join(names)} {verb}"
        for what, names, verb in (
            ("the thread", threads, "runs on"),
            ("the file", files, "stays open"),
            ("the process", processes, "runs on"),
        )
        if names
    ]
    return ", and ".join(parts)


def _open_files() -> frozenset[str]:
    folder = PROC / "fd"
    if not folder.exists():
        return frozenset()
    held = set()
    for link in os.listdir(folder):
        try:
            held.add(f"{link} -> {os.readlink(folder / link)}")
        except OSError:  # the descriptor of this listing itself
            continue
    return frozenset(held)


def _children() -> frozenset[str]:
    found: set[str] = set()
    for file in PROC.glob("task/*/children"):
        try:
            found.update(file.read_text().split())
        except OSError:  # a thread that has just ended
            continue
    return frozenset(found)
