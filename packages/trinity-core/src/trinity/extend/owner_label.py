"""Name a part in a message: what it is called, and whose it is."""

from __future__ import annotations

from trinity.extend.manager import get_manager

__all__ = ["owner_label"]


def owner_label(part: object) -> str:
    """Return the part's class and whose it is, as ``Clip (foo-trinity 2.0)``."""
    cls = part if isinstance(part, type) else type(part)
    manager = get_manager()
    key = manager.owner_of(cls.__module__)
    owners = [plugin.record for plugin in manager.found if plugin.record.key == key]
    owner = str(owners[0].origin) if owners else f"your class {cls.__module__}:{cls.__qualname__}"
    return f"{cls.__name__} ({owner})"
