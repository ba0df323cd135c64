"""The loader of one module under two names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["AliasLoader"]


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
