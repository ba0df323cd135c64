"""Say in one line how somebody else's code failed."""

from __future__ import annotations

import traceback
from pathlib import Path

_OURS = tuple(str(Path(__file__).parent.parent / room) for room in ("extend", "cli", "common"))


def described_failure(error: BaseException) -> str:
    """Return the error's type, its first line, and the plugin's own line that led to it."""
    text = str(error).strip()
    first_line = text.splitlines()[0] if text else ""
    where = _own_line(error)
    return f"{type(error).__name__}: {first_line}".removesuffix(": ") + (
        f" at {where}" if where else ""
    )


def _own_line(error: BaseException) -> str | None:
    """Return ``file:line`` of the first frame that is neither ours, who called, nor importlib's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    for frame in traceback.extract_tb(error.__traceback__):
        is_machinery = any(part in frame.filename for part in ("importlib", "/pluggy/", *_OURS))
        if not is_machinery:
            return f"{frame.filename}:{frame.lineno}"
    return None
