"""``import sibling`` in a plugin folder: each folder's modules find their own neighbours.

A neighbour is known to Python by its bare name only while a plugin of its folder is imported: two
folders may both have a ``helper.py``.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from trinity.extend.alias_loader import AliasLoader, forget_foreign
from trinity.extend.held import current_owner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import ModuleType

__all__ = ["SiblingFinder", "finder_of", "own_siblings"]


class SiblingFinder:
    """Answers ``import sibling`` with the folder's module, if nothing else has that name."""

    def __init__(self, root: Path, package: str) -> None:
        self.root = root
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec whose module is the one loaded under the folder's package.

        Raises:
            ImportError: several folders have it, and none of them is being loaded.
        """
        if path is not None or "." in fullname or not self._has(fullname):
            return None
        if not self._is_loading():
            others = [finder for finder in _finders() if finder._has(fullname)]
            if any(finder._is_loading() for finder in others):
                return None
            if len(others) > 1:
                folders = " and in ".join(str(finder.root) for finder in others)
                raise ImportError(
                    f"{fullname!r} is in the plugin folder {folders}. Import it at the top of the "
                    f"module, or write from . import {fullname}",
                    name=fullname,
                )
        loader = AliasLoader(f"{self.package}.{fullname}")
        return ModuleSpec(fullname, loader)  # type: ignore[arg-type]  # importlib.abc is slow

    def forget(self) -> None:
        """Make Python forget the bare names of the folder's modules, not the modules."""
        for path in self.root.iterdir() if self.root.is_dir() else ():  # it may be gone by now
            module = sys.modules.get(path.stem)
            if getattr(module, "__name__", "") == f"{self.package}.{path.stem}":
                del sys.modules[path.stem]

    def _has(self, name: str) -> bool:
        here = self.root / name
        return here.with_suffix(".py").is_file() or (here / "__init__.py").is_file()

    def _is_loading(self) -> bool:
        source, _, _ = (current_owner() or "").rpartition(":")
        return source.startswith("plugin-dir ") and str(self.root) == os.path.dirname(
            source.removeprefix("plugin-dir ")
        )


def finder_of(root: Path) -> SiblingFinder | None:
    """Return the finder of a folder's modules, if one is installed."""
    return next((finder for finder in _finders() if finder.root == root), None)


@contextmanager
def own_siblings() -> Iterator[None]:
    """Let the plugin that is imported inside find the neighbours of its own folder only."""
    _forget_all()
    try:
        yield
    finally:
        _forget_all()


def _forget_all() -> None:
    forget_foreign()
    for finder in _finders():
        finder.forget()


def _finders() -> list[SiblingFinder]:
    return [finder for finder in sys.meta_path if isinstance(finder, SiblingFinder)]
