"""What workflows returned, ``buffer/explorer_output.jsonl``: an index of its lines by task.

The file may have gigabytes; its lines are found in a thread, and read one by one when asked for.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Rollouts"]

_EID = re.compile(
    rb'"eid": \{"batch": ("[^"]*"|-?\d+), "task": ("[^"]*"|-?\d+), "run": (-?\d+), "step": (-?\d+)'
    rb', "suffix": "([^"]*)"\}'
)
_CHUNK = 2 << 20
_TAIL = 4096  # bytes by which a file is known again
_AT_ONCE = 16 << 20  # bytes that are looked through before a page is drawn
Row = dict[str, Any]  # Any: json
Key = tuple[str, str, str, str]  # batch, task, run, step and suffix


class Rollouts:
    """Where each experience lies; any thread may ask while another looks on.

    Args:
        path: of the file, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0  # bytes that were looked through
        self.num_damaged = 0
        self._tail = b""  # what stands before the end
        self._places: list[tuple[int, int]] = []
        self._by_task: dict[tuple[str, str], list[tuple[str, str, int]]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def size(self) -> int:
        """Return the bytes of the file."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def follow(self, *, patience_s: float = 0.02) -> bool:
        """Look for what is new, and wait so long; return whether all is found."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                if not self._is_the_same():
                    self.end, self.num_damaged, self._tail = 0, 0, b""
                    self._places, self._by_task = [], {}
                if self.size - self.end <= _AT_ONCE:
                    self._look()
                    return True
                self._thread = threading.Thread(target=self._look, daemon=True)
                self._thread.start()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _is_the_same(self) -> bool:
        """Return whether the file still holds what was read, and was not cut back since."""
        if not self._tail:
            return True
        try:
            with self.path.open("rb") as file:
                file.seek(self.end - len(self._tail))
                return file.read(len(self._tail)) == self._tail
        except OSError:
            return False

    def tasks(self) -> list[tuple[str, str]]:
        """Return the tasks, ``(batch, task)``, in the order they came."""
        return list(self._by_task)

    def runs(self, batch: str, task: str) -> list[str]:
        """Return the numbers of a task's runs."""
        return sorted({run for run, _, _ in self._by_task.get((batch, task), [])}, key=_order)

    def read(self, batch: str, task: str, *, run: str | None = None) -> list[Row]:
        """Return the experiences of a task, or of one run of it; damaged lines are left out."""
        chosen = [
            (_order(number), _order(step), place)
            for number, step, place in self._by_task.get((batch, task), [])
            if run in {None, number}
        ]
        rows = []
        try:
            with self.path.open("rb") as file:
                for _, _, place in sorted(chosen):
                    offset, size = self._places[place]
                    file.seek(offset)
                    rows += _row(file.read(size))
        except OSError:
            return rows
        return rows

    def _look(self) -> None:
        try:
            with self.path.open("rb") as file:
                while True:
                    file.seek(self.end)
                    chunk = file.read(_CHUNK)
                    whole = chunk.rfind(b"\n") + 1
                    if chunk and not whole:  # one line that is longer than a chunk
                        chunk += file.readline()
                        whole = len(chunk) if chunk.endswith(b"\n") else 0
                    if not whole:
                        return
                    self._note(chunk[:whole])
        except OSError:
            return

    def _note(self, lines: bytes) -> None:
        start, offset = 0, self.end
        while start < len(lines):
            end = lines.index(b"\n", start) + 1
            found = _EID.search(lines, start, end)
            if found is None:
                self.num_damaged += 1
            else:
                batch, task, run, step, suffix = (
                    part.decode("utf-8", "replace") for part in found.groups()
                )
                key = (batch.strip('"'), task.strip('"'))
                place = f"{step}/{suffix}" if suffix else step
                self._by_task.setdefault(key, []).append((run, place, len(self._places)))
                self._places.append((offset + start, end - start))
            start = end
        self._tail = (self._tail + lines[-_TAIL:])[-_TAIL:]
        self.end = offset + len(lines)


def _row(line: bytes) -> list[Row]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [row] if isinstance(row, dict) else []


def _order(text: str) -> tuple[int, str]:
    head = text.partition("/")[0]
    return (int(head), text) if head.lstrip("-").isdecimal() else (0, text)
