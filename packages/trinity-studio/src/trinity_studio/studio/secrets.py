"""What nobody is to read over a shoulder: keys, tokens and passwords of a configuration."""

from __future__ import annotations

from trinity.runtime.record.changes import flat

from trinity_studio.studio.document import Document
from trinity_studio.view.shown import Masker

__all__ = ["without_secrets"]


def without_secrets(text: str) -> str:
    """Return the text of a YAML file that the page wrote, its secrets as stars."""
    values = Document.read(text, name="the page").values if text.strip() not in {"", "{}"} else {}
    return Masker(dict(flat(values))).text(text)
