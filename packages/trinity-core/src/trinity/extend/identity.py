"""What makes two plugin sets equal: distribution, version, entry point and source."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.extend.discovery import FoundPlugin

NUM_LOOKS = 5  # at sources that vanish while they are read
LOOK_AGAIN_S = 0.05


def set_digest(plugins: Iterable[FoundPlugin]) -> str:
    """Return 16 hex digits that differ when any plugin, version or source line differs."""
    lines = []
    for plugin in plugins:
        record = plugin.record
        module = record.module if record.distribution else ""  # a folder's path is not its identity
        identity = (record.distribution, record.version, record.name, module)
        lines.append(f"{identity} {source_hash(plugin)}")
    return _short_hash("\n".join(sorted(lines)).encode())


def source_hash(plugin: FoundPlugin) -> str:
    """Return a hash of the plugin's source, from a wheel's own record of it where there is one."""
    record, distribution = plugin.record, plugin.distribution
    if record.source != "editable" and distribution is not None:
        listing = distribution.read_text("RECORD")
        if listing:
            return _short_hash("\n".join(sorted(listing.splitlines())).encode())
    root = Path(record.path) if record.distribution is None and record.path else None
    return _tree_hash(root or _package_root(record.module))


def _package_root(module: str) -> Path | None:
    """Return the folder or file of the top-level package; None: it cannot be found."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


def _tree_hash(root: Path | None) -> str:
    """Return the hash of the sources; ``missing`` where there are none, or none that stay."""
    for _ in range(NUM_LOOKS):
        if root is None or not root.exists():
            break
        try:
            files = [os.fspath(root)] if root.is_file() else _sources(os.fspath(root))
            base = os.fspath(root.parent if root.is_file() else root)
            return _content_hash(base, tuple((file, *_stamp(file)) for file in files))
        except FileNotFoundError:  # somebody edits it, or moves to another commit: look again
            time.sleep(LOOK_AGAIN_S)
    return "missing"


def _sources(folder: str) -> list[str]:
    """Return the Python files of a folder and of those in it, in the order of their parts."""
    found, folders = [], [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] if entry.name != "__pycache__" else []
                elif entry.name.endswith(".py"):
                    found.append(entry.path)
    return sorted(found, key=lambda file: file.split(os.sep))


def _stamp(file: str) -> tuple[int, int, int, int]:
    """Return what changes with a file's content: inode, size, and both times in ns."""
    stat = os.stat(file)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@lru_cache(maxsize=256)  # trees; each checkpoint asks for all of them
def _content_hash(base: str, stamped: tuple[tuple[str, int, int, int, int], ...]) -> str:
    content = hashlib.sha256()
    for file, *_ in stamped:
        name = file[len(base) + 1 :].replace(os.sep, "/")
        content.update(f"{name}\n".encode())
        content.update(Path(file).read_bytes())
    return content.hexdigest()[:16]


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
