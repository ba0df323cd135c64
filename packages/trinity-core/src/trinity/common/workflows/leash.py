"""Start a command that ends with this process, however that dies, and all that it started too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LeashedProcess"]

# Lets the kernel end the group when the other end of a pipe is closed, as a kill of this process
# closes it; then becomes the command.
_LEASH = """
import fcntl, os, signal, sys
fd = int(sys.argv[1])
signal.signal(signal.SIGIO, signal.SIG_DFL)
fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
os.execvp(sys.argv[2], sys.argv[2:])
"""
_ENDS_WITHIN_S = 5.0


class LeashedProcess:
    """A command in a process group of its own.

    Args:
        words: the command.
        pass_fds: descriptors that it inherits.
        **options: of ``subprocess.Popen`` (Any: each option's own type).

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, words: Sequence[str], *, pass_fds: Sequence[int] = (), **options: Any
    ) -> None:
        self._lock = threading.Lock()
        leash, self._held = os.pipe()
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-ISc", _LEASH, str(leash), *words],
                start_new_session=True,
                pass_fds=[leash, *pass_fds],
                **options,
            )
        except BaseException:
            os.close(self._held)
            raise
        finally:
            os.close(leash)

    @property
    def is_running(self) -> bool:
        """Return whether the command itself has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the command and all that it started; from any thread."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDS_WITHIN_S)

    def end(self) -> None:
        """Kill it and free what is held for it here; safe to call twice."""
        self.kill()
        with self._lock:
            held, self._held = self._held, -1
        if held >= 0:
            os.close(held)
