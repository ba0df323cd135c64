"""Read a large JSON file one entry after another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["entries_of", "items_of"]

_CHUNK = 1 << 20
_SPACE = " \t\r\n"
_OF_NUMBERS = "0123456789.eE+-"


def entries_of(path: Path) -> Iterator[Any]:
    """Yield the entries of a file that holds one JSON list.

    Raises:
        DataError: the file holds no list, or is damaged; says where.
    """
    text = _Text(path)
    text.expect("[", "a JSON list")
    if text.peek() == "]":
        return
    while True:
        yield text.value()
        if text.separator(closing="]"):
            return


def items_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the items of a file that holds one JSON object.

    Raises:
        DataError: the file holds no object, or is damaged; says where.
    """
    text = _Text(path)
    text.expect("{", "a JSON object")
    if text.peek() == "}":
        return
    while True:
        key = text.value()
        text.expect(":", "a colon after each key")
        yield key, text.value()
        if text.separator(closing="}"):
            return


class _Text:
    """The part of the file that has been read and not yet used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open(encoding="utf-8-sig", errors="surrogateescape")
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._place = 0
        self._num_dropped = 0

    def peek(self) -> str:
        """Return the next character that is no white space; empty at the end."""
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in _SPACE:
                    return self._text[self._place]
                self._place += 1
            if not self._more():
                return ""

    def expect(self, character: str, what: str) -> None:
        if self.peek() != character:
            raise self._damaged(
                f"it holds no {what.removeprefix('a ')}" if what[0] == "a" else what
            )
        self._place += 1

    def separator(self, *, closing: str) -> bool:
        """Return whether the file's list or object ends here, having read the mark."""
        mark = self.peek()
        if mark not in {",", closing} or not mark:
            raise self._damaged("an entry is not followed by a comma")
        self._place += 1
        return mark == closing

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                if self._more():
                    continue
                raise self._damaged(str(error.msg)) from error
            may_go_on = isinstance(value, (int, float)) and not self._text[end:].strip(_OF_NUMBERS)
            if may_go_on and self._more():
                continue
            self._place = end
            return value

    def _more(self) -> bool:
        """Read on; return False at the end of the file."""
        if self._file.closed:
            return False
        chunk = self._file.read(max(_CHUNK, len(self._text) - self._place))
        if not chunk:
            self._file.close()
            return False
        self._num_dropped += self._place
        self._text, self._place = self._text[self._place :] + chunk, 0
        return True

    def _damaged(self, what: str) -> DataError:
        place = self._num_dropped + self._place
        self._file.close()
        return DataError(
            f"{self._path} cannot be read: {what}, at character {place:,}. Fetch the file again, "
            f"unpacked and complete; trinity plugins setup webshop --data FOLDER checks it."
        )
