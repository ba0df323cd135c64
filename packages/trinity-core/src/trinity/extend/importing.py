"""Import a plugin's code: what registers a class inside is its, what it prints goes to stderr."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from trinity.extend.hook_call import current_owner, loading_as
from trinity.extend.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN: set[str] = set()  # names outside trinity that are answered while users' files are imported


@contextmanager
def importing_as(owner: str, *, limit_s: float = 300.0) -> Iterator[None]:
    """Do as ``loading_as``; what the import prints goes to stderr: stdout may be JSON.

    Raises:
        HungPartError: it did not end in ``limit_s``.
    """
    name = owner.rpartition(":")[2]
    watch = Watch(
        lambda line: sys.stderr.write(f"{line}\n"),
        whose=lambda file: "" if file.startswith("<") else name,
        report_after_s=min(20.0, limit_s / 2),
        end_after_s=limit_s,
        remedy=f"Leave it out with -P no:{name}, or do that later than at the import",
        what=f"the import of plugin {name}",
    )
    is_outermost = current_owner() is None
    try:
        with loading_as(owner), _STDERR, watch:
            yield
    finally:
        while is_outermost and FOREIGN:
            sys.modules.pop(FOREIGN.pop(), None)


class _PrintsToStderr:
    """Redirects stdout while at least one thread is inside: each would restore what it found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._stack = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._num_inside:
                self._stack.enter_context(redirect_stdout(sys.stderr))
            self._num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if not self._num_inside:
                self._stack.close()


_STDERR = _PrintsToStderr()
