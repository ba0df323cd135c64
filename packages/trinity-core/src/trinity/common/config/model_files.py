"""Finds a model's files in its folder or in the Hugging Face cache, without the network."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["is_hub_id", "model_file"]


_ID = re.compile(r"([A-Za-z0-9_][\w.-]{0,95}/)?[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)


def is_hub_id(path: str) -> bool:
    """Return whether a path that does not exist can be an id of the Hugging Face hub.

    >>> is_hub_id("Qwen/Qwen3-0.6B"), is_hub_id("models/"), is_hub_id("a--b")
    (True, False, False)
    """
    is_named = _ID.fullmatch(path) is not None and not re.search(r"--|\.\.|\.git$", path)
    return is_named and not any(part[-1] in "-." for part in path.split("/"))


def model_file(model_path: str, name: str) -> Path | None:
    """Return a file of a model, None where it is neither in the folder nor in the cache."""
    if not model_path:
        return None
    if os.path.isdir(model_path):  # False for what is no path; Path.is_dir raises
        file = Path(model_path) / name
        return file if file.is_file() else None
    if not is_hub_id(model_path):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model_path, name)
    return Path(found) if isinstance(found, str) else None
