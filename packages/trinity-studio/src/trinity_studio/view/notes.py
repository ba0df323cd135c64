"""Tags and a note of a run, ``notes.json``: written by a person's command, read by the pages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.runtime.record.records import write_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Notes", "read_notes", "write_notes"]

FILE = "notes.json"


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What a person wrote beside a run."""

    tags: tuple[str, ...] = ()
    note: str = ""


def read_notes(directory: Path) -> Notes:
    """Return what is written down; nothing where the file is not there, or no such object."""
    try:
        found = json.loads((directory / FILE).read_text(encoding="utf-8"))
        tags, note = found.get("tags", []), found.get("note", "")
        return Notes(tags=tuple(map(str, tags)), note=str(note))
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        return Notes()


def write_notes(directory: Path, *, tags: Sequence[str], note: str | None) -> Notes:
    """Add and remove tags, and set the note; return what is written then.

    Args:
        directory: of the run.
        tags: to add; one that begins with ``-`` is removed.
        note: None: it stays.

    Raises:
        ConfigError: the file cannot be written.
    """
    before = read_notes(directory)
    kept = dict.fromkeys(before.tags)
    for tag in tags:
        if tag.startswith("-"):
            kept.pop(tag[1:], None)
        else:
            kept[tag] = None
    notes = Notes(tags=tuple(kept), note=before.note if note is None else note)
    try:
        write_record(directory / FILE, {"tags": list(notes.tags), "note": notes.note})
    except OSError as error:
        raise ConfigError(
            f"{directory / FILE} cannot be written: {error.strerror or error}. Let this user "
            f"write to the run directory."
        ) from error
    return notes
