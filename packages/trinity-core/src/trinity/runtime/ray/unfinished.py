"""End a Ray that was stopped while it started, however often Ctrl-C is pressed meanwhile.

``ray.shutdown()`` knows of no process before all of them are up, and what the raylet has started by
then, as its agents, notices only minutes later that it is gone.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ray._private.node import Node


@contextmanager
def started_nodes() -> Iterator[list[Node]]:
    """Give the nodes that Ray begins to start within the block."""
    from ray._private.node import Node

    start, nodes = Node.start_head_processes, list[Node]()

    def noted(node: Node) -> None:
        nodes.append(node)
        start(node)

    Node.start_head_processes = noted
    try:
        yield nodes
    finally:
        Node.start_head_processes = start


def end_unfinished(nodes: Sequence[Node]) -> None:
    """Disconnect this process, and end all that belongs to the nodes; signals wait for nobody.

    Args:
        nodes: of this process; none where it joins another Ray.
    """
    import ray

    with _unheard_signals():
        names = [node._session_name.encode() for node in nodes]
        before = _processes_of(names)
        try:
            ray.shutdown()
            for node in nodes:
                node.kill_all_processes(check_alive=False, allow_graceful=True)
        finally:
            there = _processes()
            left = {pid for pid, began in before.items() if there.get(pid) == began}
            for pid in left | set(_processes_of(names)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _processes_of(sessions: Sequence[bytes]) -> dict[int, int]:
    """Return the processes with a session's name in their arguments or files, and all below them.

    An agent has other arguments once it has given itself a title, and nobody above it once the
    raylet is gone, but a log of the session open. Each has the time when it began, in ticks: its
    number may be another one's later.
    """
    found: dict[int, int] = {}
    if not sessions:
        return found
    there, parents = _processes(), _parents()
    own = {pid for pid in there if any(name in _arguments(pid) for name in sessions)}
    own |= {pid for pid in there if any(name in _files(pid) for name in sessions)} - {os.getpid()}
    for pid, began in there.items():
        above: int | None = pid
        while above is not None and above not in own:
            above = parents.get(above)
        if above is not None:
            found[pid] = began
    return found


def _processes() -> dict[int, int]:
    """Return when each process of this user began; where the system has no /proc, none."""
    return {pid: int(fields[19]) for pid, fields in _stats()}


def _parents() -> dict[int, int]:
    return {pid: int(fields[1]) for pid, fields in _stats()}


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Give the numbers of this user's processes with the fields of their ``stat`` from the 3rd."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if directory.stat().st_uid == os.getuid():
                text = (directory / "stat").read_text("utf-8", "replace")
                yield int(directory.name), text.rpartition(")")[2].split()


def _arguments(pid: int) -> bytes:
    with suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _files(pid: int) -> bytes:
    """Return the paths of the files that a process has open."""
    found = []
    with suppress(OSError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed
                found.append(os.readlink(os.fsencode(link)))
    return b"\n".join(found)


@contextmanager
def _unheard_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM; outside the main thread, where none arrive, nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
