"""Note how much memory a run has used: who is killed for lack of it says nothing.

run.memory    {"used": ..., "limit": ..., "oom_kills": ...}; removed when the run ends by itself
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

from trinity.common.memory import LACK_OF_MEMORY, Memory, memory, num_oom_kills

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trinity.runtime.display import Display

LOOK_S = 0.5
NEAR = 0.9  # of the limit: it is shown
STEP = 0.01  # of the limit: so much more is written down


class MemoryRecord:
    """Looks at the memory while it is entered; shows it where it is near the limit.

    Args:
        path: of the file.
        display: of the run.
        read: returns what is used now.
    """

    def __init__(
        self,
        path: Path,
        display: Display,
        *,
        read: Callable[[], Memory | None] = memory,
    ) -> None:
        self._path, self._display, self._read = path, display, read
        self._written: Memory | None = None
        self._is_told = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="trinity-memory", daemon=True)

    def __enter__(self) -> MemoryRecord:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(LOOK_S)
        self._path.unlink(missing_ok=True)

    def look(self) -> None:
        """Look once."""
        now, before = self._read(), self._written
        if now is None:
            return
        is_near = now.used >= NEAR * now.limit
        self._display.show_memory(str(now) if is_near else "")
        if is_near and not self._is_told:
            self._is_told = True
            self._display.say(f"memory: {now} are used; at the limit the system ends the run")
        if before is None or now.used >= before.used + STEP * now.limit:
            self._written = now
            with contextlib.suppress(OSError):  # a full disk is told by who must write
                self._path.write_text(json.dumps(asdict(now) | {"oom_kills": num_oom_kills()}))

    def _look_on(self) -> None:
        while not self._is_over.wait(LOOK_S):
            self.look()


def last_memory(path: Path) -> str:
    """Return how the memory was when a run ended without saying so; "": it was not short.

    Args:
        path: of the file that it left.
    """
    try:
        noted = json.loads(path.read_text(encoding="ascii"))
        last, kills = Memory(used=noted["used"], limit=noted["limit"]), noted["oom_kills"]
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    was_killed = num_oom_kills() > kills
    if last.used < NEAR * last.limit and not was_killed:
        return ""
    return f", at {last} of memory{f'; {LACK_OF_MEMORY}' if was_killed else ''}"
