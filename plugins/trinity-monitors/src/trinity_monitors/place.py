"""Remember which run of a service belongs to a run directory, and how far it was written."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Place"]

_ANY = ""  # the family of lines that name none: they count for all names


class Place:
    """The service's run id and what it has, line by line in a file of the run directory.

    A run that goes on from a checkpoint makes some steps again, with the same numbers; the service
    has them already and cannot forget them. A step may have several records, of other names each,
    and each family of names (``rollout``, ``bench``: what stands before the slash) is at a step of
    its own: checkpoints are evaluated when the last step of the run is long written.

    Args:
        path: of the file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.run_id = ""  # "": there is none yet
        self._steps: dict[str, tuple[int, set[str]]] = {}  # family -> last step, its records
        self._read()

    def begin(self, run_id: str) -> None:
        """Take a run of the service as this directory's."""
        self.run_id = run_id
        self._append({"run_id": run_id})

    def has(self, step: int, names: Iterable[str]) -> bool:
        """Return whether a record was written before."""
        last, seen = self._steps.get(_family(names), self._steps.get(_ANY, (-1, set())))
        return step < last or (step == last and _key(names) in seen)

    def note(self, step: int, names: Iterable[str]) -> None:
        """Note that a record is written."""
        key, family = _key(names), _family(names)
        self._take(step, key, family)
        self._append({"step": step, "names": key, "of": family})

    def _take(self, step: int, key: str, family: str) -> None:
        last, seen = self._steps.get(family, (-1, set()))
        if step > last:
            self._steps[family] = (step, {key})
        elif step == last:
            seen.add(key)

    def _read(self) -> None:
        if not self._path.exists():
            return
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                noted = json.loads(line)
                self.run_id = str(noted.get("run_id", self.run_id))
                if "step" in noted:
                    family = str(noted.get("of", _ANY))
                    self._take(int(noted["step"]), str(noted["names"]), family)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # cut short by a kill: that record is written again

    def _append(self, noted: dict[str, object]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(noted) + "\n")


def _key(names: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(sorted(names)).encode(), digest_size=8).hexdigest()


def _family(names: Iterable[str]) -> str:
    return " ".join(sorted({name.partition("/")[0] for name in names}))
