"""What makes two plugin sets equal: distribution, version, entry point and source."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.extend.discovery import FoundPlugin

__all__ = ["set_digest", "source_hash"]


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
    if root is None or not root.exists():
        return "missing"
    files = [root] if root.is_file() else sorted(root.rglob("*.py"))
    base = root.parent if root.is_file() else root
    content = hashlib.sha256()
    for file in files:
        content.update(f"{file.relative_to(base).as_posix()}\n".encode())
        content.update(file.read_bytes())
    return content.hexdigest()[:16]


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
