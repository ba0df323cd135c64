"""What nobody is to read over a shoulder: keys, tokens and passwords of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.runtime.record.changes import flat

from trinity_studio.studio.document import Document
from trinity_studio.view.shown import Masker

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["masker_of", "without_secrets"]


def without_secrets(text: str) -> str:
    """Return the text of a YAML file that the page wrote, its secrets as stars."""
    return _masker(text).text(text)


def masker_of(path: Path) -> Masker:
    """Return what hides the secrets of a file; of no file, passwords in addresses alone."""
    try:
        return _masker(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Masker({})


def _masker(text: str) -> Masker:
    try:
        return Masker(dict(flat(Document.read(text, name="the file").values)))
    except ConfigError:  # it says nothing
        return Masker({})
