"""Checkpoints: ``tinker://MODEL/KIND/NAME``, each a folder with an adapter as peft reads it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trinity_tinker.refusal import Refused

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from trinity_tinker.store import Store

__all__ = ["KINDS", "MAX_TTL_S", "MIN_TTL_S", "Checkpoints", "has_versions", "without_version"]

KINDS = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
MIN_TTL_S, MAX_TTL_S = 3600, 10 * 366 * 86400
_NAME = re.compile(r"[^/\0]{1,200}")
_OF_VERSION = "@"  # in the name of a folder, where a quoted name has none
_LONGEST = 200  # bytes of a folder's name; file systems take 255


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """Folders of checkpoints below one folder, and their rows in the store."""

    store: Store
    folder: Path
    #: Held while files take their place together with their row, or go with it.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def save(  # noqa: PLR0913 -- what a checkpoint is, one by one
        self,
        model: sqlite3.Row | dict[str, Any],
        *,
        kind: str,
        name: str,
        write: Callable[[Path], None],
        note: Callable[[str], None],
        ttl_s: int | None = None,
        metadata: Any = None,
        may_replace: bool = False,
        version: int | None = None,
    ) -> str:
        """Write a checkpoint whole, or nothing; return its path (Any: JSON of a client).

        ``note`` is called with the path in the transaction by which it is there. One with a version
        takes the place of the version before, whose files are there until it has.

        Raises:
            Refused: the name is not one, is taken, or the ttl does not fit.
        """
        below = _folder_name(name) + ("" if version is None else f"{_OF_VERSION}{version}")
        path = f"tinker://{model['id']}/{kind}/{name}"
        known = self.store.row("SELECT * FROM checkpoints WHERE path = ?", path)
        may_replace |= version is not None and known is not None and has_versions(known["folder"])
        if known is not None and not may_replace and not _is_over(known):
            raise Refused(f"{path} exists; choose another name, or delete it.")
        expires = expiry(ttl_s)
        folder = Path(quote(model["id"], safe=""), kind, below)
        unfinished = _written(self.folder / folder, write)
        before = 0.0 if known is None else math.nextafter(known["made"], math.inf)
        made = max(time.time(), before)  # later than the version before, if a clock was set back
        with self.lock:
            size = _put_in_place(unfinished, self.folder / folder)
            with self.store.writing():
                self.store.write(
                    "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    *(path, model["owner"], model["id"], kind, made, expires, size),
                    *(str(folder), model["base"], model["adapter"], json.dumps(metadata)),
                )
                note(path)
        if version is not None:
            for old in (self.folder / folder.parent).glob(f"{_folder_name(name)}{_OF_VERSION}*"):
                if old.name != below:
                    shutil.rmtree(old, ignore_errors=True)
        return path

    def find(self, path: str, *, owner: str) -> sqlite3.Row:
        """Return the row of a checkpoint.

        Raises:
            Refused: there is none, it has expired, or is somebody else's.
        """
        found = self.store.row(
            "SELECT * FROM checkpoints WHERE path = ? AND owner = ?", path, owner
        )
        if found is None or _is_over(found):
            raise Refused(f"there is no checkpoint {path!r}.")
        return found

    def folder_of(self, row: sqlite3.Row) -> Path:
        """Return where the files of a checkpoint are."""
        return self.folder / str(row["folder"])

    def delete(self, row: sqlite3.Row) -> bool:
        """Forget a checkpoint, then its files; return whether: one that is saved anew stays."""
        query = "DELETE FROM checkpoints WHERE path = ? AND made = ?"
        with self.lock:
            is_there = self.store.write(query, row["path"], row["made"]) > 0
            if is_there:
                shutil.rmtree(self.folder_of(row), ignore_errors=True)
        return is_there

    def delete_expired(self) -> list[Path]:
        """Delete all whose time is over; return their folders."""
        rows = self.store.rows("SELECT * FROM checkpoints WHERE expires < ?", time.time())
        return [self.folder_of(row) for row in rows if self.delete(row)]


def has_versions(folder: str | Path) -> bool:
    """Return whether the weights of a checkpoint's folder make way for others of the same path."""
    return _OF_VERSION in Path(folder).name


def without_version(folder: Path) -> Path:
    """Return what the folders of all versions of a checkpoint have in common."""
    return folder.with_name(folder.name.partition(_OF_VERSION)[0])


def _folder_name(name: Any) -> str:
    """Return the folder of a checkpoint's name (Any: of a client).

    Raises:
        Refused: the name is not one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused(f"the name {name!r} of a checkpoint is empty, too long or has a '/'.")
    try:
        quoted = quote(name, safe="").replace(".", "%2E")
    except UnicodeEncodeError as error:
        raise Refused(f"the name {name!r} of a checkpoint is no text of Unicode.") from error
    if len(quoted) <= _LONGEST:
        return quoted
    return "%-" + hashlib.sha256(name.encode()).hexdigest()  # which no quoted name begins with


def write_whole(target: Path, write: Callable[[Path], None]) -> int:
    """Let a folder appear with all its files, on the disk; return their bytes."""
    return _put_in_place(_written(target, write), target)


def _written(target: Path, write: Callable[[Path], None]) -> Path:
    """Return a folder beside the target with all its files, on the disk."""
    unfinished = target.with_name(target.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    write(unfinished)
    files = [path for path in unfinished.rglob("*") if path.is_file()]
    for path in [*files, *{path.parent for path in files}]:
        _to_disk(path)
    return unfinished


def _put_in_place(unfinished: Path, target: Path) -> int:
    """Let a folder take the place of another; return the bytes of its files."""
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    _to_disk(target.parent)
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def expiry(ttl_s: int | None) -> float | None:
    """Return when a checkpoint ends that lives for so many seconds; None: never.

    Raises:
        Refused: too few or too many.
    """
    if ttl_s is None:
        return None
    if not isinstance(ttl_s, int) or not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
        raise Refused(f"ttl_seconds is {ttl_s!r}; it is from {MIN_TTL_S} (an hour) to 10 years.")
    return time.time() + ttl_s


def _is_over(row: sqlite3.Row) -> bool:
    return row["expires"] is not None and row["expires"] < time.time()
