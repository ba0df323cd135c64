"""The loader of one module under two names."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["AliasLoader", "forget_foreign", "note_foreign"]

_foreign: set[str] = set()  # names outside trinity that were answered for a plugin folder


class AliasLoader:
    """Gives a module that is loaded under another name."""

    def __init__(self, real_name: str) -> None:
        self.real_name = real_name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the real module itself."""
        module = importlib.import_module(self.real_name)
        self._real_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back; it has been executed already."""
        module.__spec__ = self._real_spec


def note_foreign(name: str) -> None:
    """Remember that a name outside ``trinity`` is answered."""
    _foreign.add(name)


def forget_foreign() -> None:
    """Make Python forget the names outside ``trinity`` that were answered, not their modules."""
    for name in _foreign:
        sys.modules.pop(name, None)
    _foreign.clear()
