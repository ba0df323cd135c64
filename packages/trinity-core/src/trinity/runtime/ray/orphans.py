"""End what a run has started over its own Ray once the driver is gone, ``kill -9`` included.

Ray's processes find that out by themselves, some after more than a minute: until then they hold
memory, GPUs and ports. So a small process waits for the end of the driver, and kills all that have
the mark of this run in their environment: those of another Ray, and of another run, have not.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

TYPE_CHECKING = False  # this file is a program, too, that imports as little as it can
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MARK", "end_marked", "ended_with_driver"]

MARK = "TRINITY_RAY_OF_RUN"
_ROUNDS, _PAUSE_S = 25, 0.2  # a process that is being started has no mark yet


@contextmanager
def ended_with_driver() -> Iterator[dict[str, str]]:
    """Give the variable that all processes of this run's Ray must be started with."""
    mark = secrets.token_hex(8)
    if not hasattr(os, "pidfd_open"):  # this system is no Linux, and tells no environment either
        yield {}
        return
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the run
    )
    try:
        yield {MARK: mark, "SPT_NOENV": "1"}  # a title must not overwrite the environment
    finally:
        watcher.kill()
        watcher.wait(timeout=10)


def end_marked(mark: str) -> None:
    """Kill the processes that were started with the mark of a run."""
    variable = f"{MARK}={mark}".encode()
    for directory in Path("/proc").glob("[0-9]*") if mark else ():
        with suppress(OSError):  # it has ended, or is another user's
            if variable in (directory / "environ").read_bytes().split(b"\0"):
                os.kill(int(directory.name), signal.SIGKILL)


def _watch(driver: int, mark: str) -> None:
    with suppress(ProcessLookupError):
        poll = select.poll()
        poll.register(os.pidfd_open(driver), select.POLLIN)
        poll.poll()
    for _ in range(_ROUNDS):
        end_marked(mark)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2])
