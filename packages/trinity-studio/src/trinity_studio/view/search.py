"""Looks for a text in what workflows returned, for a part of a second a page.

Bytes are looked for first; only lines that hold them are parsed.
"""

from __future__ import annotations

import json
import mmap
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Found", "search"]

MOST = 30  # on a page
PATIENCE_S = 0.05
_FIELDS = ("prompt_text", "response_text")
_PIECE = 8 << 20  # bytes between two looks at the clock


@dataclass(kw_only=True)
class Found:
    """What a page of a search holds.

    Attributes:
        rows: that say it.
        next: byte from which the next page goes on; None: the file is at its end.
        share: of the file that was looked through.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)  # Any: json
    next: int | None = None
    share: float = 1.0


def search(path: Path, text: str, *, start: int = 0) -> Found:
    """Return rows whose prompt or reply holds a text, capital letters as they are.

    Args:
        path: the file of the rows.
        text: what is looked for.
        start: byte from which it is looked for.
    """
    found = Found()
    wanted = {json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            end = _look(content, text, wanted, start, found)
            found.share = end / len(content)
            found.next = end if end < len(content) else None
    except (OSError, ValueError):  # not there, or empty
        return found
    return found


def _look(content: mmap.mmap, text: str, wanted: set[bytes], start: int, found: Found) -> int:
    """Note the rows after a byte; return the byte up to which was looked."""
    until = time.perf_counter() + PATIENCE_S
    place = start
    while place < len(content) and len(found.rows) < MOST and time.perf_counter() < until:
        piece = min(len(content), place + _PIECE)
        hits = [content.find(one, place, piece + len(one) - 1) for one in wanted]
        hit = min((hit for hit in hits if hit >= 0), default=-1)
        if hit < 0:
            place = piece
            continue
        line, end = content.rfind(b"\n", 0, hit) + 1, content.find(b"\n", hit)
        place = len(content) if end < 0 else end + 1
        found.rows += _row(content[line:place], text)
    return place


def _row(line: bytes, text: str) -> list[dict[str, Any]]:
    """Return the row if its prompt or its reply says the text."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return []
    is_row = isinstance(row, dict) and isinstance(row.get("eid"), dict)
    return [row] if is_row and any(text in str(row.get(name) or "") for name in _FIELDS) else []
