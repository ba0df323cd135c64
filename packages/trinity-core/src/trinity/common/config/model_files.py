"""Finds a model's files in its folder or in the Hugging Face cache, without the network."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["is_hub_id", "model_file"]


def is_hub_id(path: str) -> bool:
    """Return whether a path that does not exist can be an id of the Hugging Face hub."""
    return bool(re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", path))


def model_file(model_path: str, name: str) -> Path | None:
    """Return a file of a model, None where it is neither in the folder nor in the cache."""
    if not model_path:
        return None
    if Path(model_path).is_dir():
        file = Path(model_path) / name
        return file if file.is_file() else None
    if not is_hub_id(model_path):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model_path, name)
    return Path(found) if isinstance(found, str) else None
