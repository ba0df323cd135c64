"""Remember which run of a service belongs to a run directory, and how far it was written."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Place"]


class Place:
    """The service's run id and what it has, line by line in a file of the run directory.

    A run that goes on from a checkpoint makes some steps again, with the same numbers; the service
    has them already and cannot forget them. A step may have several records, of other names each.

    Args:
        path: of the file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.run_id = ""  # "": there is none yet
        self._step = -1
        self._seen: set[str] = set()  # the records of that step
        self._read()

    def begin(self, run_id: str) -> None:
        """Take a run of the service as this directory's."""
        self.run_id = run_id
        self._append({"run_id": run_id})

    def has(self, step: int, names: Iterable[str]) -> bool:
        """Return whether a record was written before."""
        return step < self._step or (step == self._step and _key(names) in self._seen)

    def note(self, step: int, names: Iterable[str]) -> None:
        """Note that a record is written."""
        key = _key(names)
        self._take(step, key)
        self._append({"step": step, "names": key})

    def _take(self, step: int, key: str) -> None:
        if step > self._step:
            self._step, self._seen = step, set()
        if step == self._step:
            self._seen.add(key)

    def _read(self) -> None:
        if not self._path.exists():
            return
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                noted = json.loads(line)
                self.run_id = str(noted.get("run_id", self.run_id))
                if "step" in noted:
                    self._take(int(noted["step"]), str(noted["names"]))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # cut short by a kill: that record is written again

    def _append(self, noted: dict[str, object]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(noted) + "\n")


def _key(names: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(sorted(names)).encode(), digest_size=8).hexdigest()
