"""What nobody is to read over a shoulder: keys, tokens and passwords of a configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError
from trinity.runtime.record.restart import flat, is_secret

from trinity_studio.studio.document import Document
from trinity_studio.studio.kept_text import kept_text
from trinity_studio.view.shown import Masker

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["holds_secrets", "masker_of", "shown_text", "without_secrets"]

_COMMENTED = re.compile(  # a setting that a comment holds
    r"(#.*(?:key|token|secret|passw\w*)\w*[\"']?\s*[:=]\s*)\S.*", re.IGNORECASE
)


def without_secrets(values: dict[str, Any]) -> dict[str, Any]:
    """Return the same settings with stars in place of secrets, wherever they stand."""
    masker = Masker(dict(flat(values)))
    masked = _masked(values, "", masker)
    assert isinstance(masked, dict)
    return masked


def shown_text(text: str, values: dict[str, Any]) -> str:
    """Return the file as it would be written, with stars in place of secrets, comments included.

    Args:
        text: of the file that was opened.
        values: what it is to say now.
    """
    old = Document.read(text, name="the file").values if text.strip() else {}
    masker = Masker(dict(flat({"now": values, "before": old})))  # a comment may say either
    kept = kept_text(text, without_secrets(values))
    return _COMMENTED.sub(r"\1****", masker.text(kept))


def holds_secrets(value: Any, path: str) -> bool:
    """Return whether something in a value is not to be shown."""
    return bool(_masked(value, path, Masker(dict(flat(value, path)))) != value)


def masker_of(path: Path) -> Masker:
    """Return what hides the secrets of a file; of none that can be read, those of addresses."""
    try:
        text = path.read_text(encoding="utf-8")
        return Masker(dict(flat(Document.read(text, name="the file").values)))
    except (OSError, ValueError, ConfigError):
        return Masker({})


def _masked(value: Any, path: str, masker: Masker) -> Any:
    if isinstance(value, dict):
        return {
            key: _masked(part, f"{path}.{key}" if path else str(key), masker)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_masked(part, path, masker) for part in value]
    if isinstance(value, str) and value and "${" not in value:
        return masker.setting(path, value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "****" if is_number and is_secret(path, value) else value
