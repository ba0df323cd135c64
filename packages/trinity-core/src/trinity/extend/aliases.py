"""Import paths of the published tutorials whose classes live in plugins.

One finder, last of all, answers an import inside ``trinity`` that nothing else answers: with a
module that a plugin serves there, with one whose attributes come from the plugin, or with the line
that installs the plugin.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trinity.errors import PluginError
from trinity.extend import known
from trinity.extend.alias_loader import AliasLoader, note_foreign
from trinity.extend.held import current_owner
from trinity.extend.manager import get_manager
from trinity.extend.published import PublishedModule, published_modules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.extend.component import Component

__all__ = ["PublishedPathFinder", "published_class"]


def published_class(kind: str, class_name: str) -> type:
    """Return the plugin's class with this name, for the ``__getattr__`` of a published module.

    Raises:
        AttributeError: no plugin has it, and none of ours is known to.
        ImportError: a plugin that is not installed has it; the message holds the pip line.
    """
    for component in get_manager().components(kind):
        if component.spec.target.rpartition(":")[2] == class_name:
            return component.load()
    distribution = known.distribution_of_class(class_name)
    if distribution is None:
        raise AttributeError(f"no {kind} class is named {class_name!r}")
    raise PluginError(_missing(class_name, distribution))


class PublishedPathFinder:
    """Finds what plugins serve below ``trinity``; beside it, for the files of plugin folders alone.

    A foreign name is answered where nothing else has it, and forgotten once the file is imported:
    nobody else takes that package for installed.
    """

    def __init__(self) -> None:
        self._is_asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a published path or a package above one; None for any other.

        Raises:
            PluginError: an ImportError; the path's plugin is not installed, or two serve it.
        """
        if self._is_asking:
            return None
        if fullname.startswith("trinity."):
            return self._own_spec(fullname)
        return self._foreign_spec(fullname)

    def _own_spec(self, fullname: str) -> ModuleSpec | None:
        modules, served = self._served()
        loader: _WholeLoader | _ServedLoader | None = None
        if fullname in modules:
            loader = _WholeLoader(modules[fullname])
        elif fullname in served:
            loader = _ServedLoader(served[fullname])
        if loader is not None:
            return ModuleSpec(fullname, loader)  # type: ignore[arg-type]  # importlib.abc is slow
        distribution = known.distribution_of_path(fullname)
        if distribution is not None:
            raise PluginError(_missing(fullname, distribution), name=fullname)
        instead = known.stand_in_of_path(fullname)
        if instead is not None:
            raise PluginError(
                f"{fullname} is a module of Trinity-RFT; here {instead}.", name=fullname
            )
        if any(
            below.startswith(f"{fullname}.") for below in (*modules, *served, *known.known_paths())
        ):
            return ModuleSpec(fullname, None, is_package=True)
        return None

    def _foreign_spec(self, fullname: str) -> ModuleSpec | None:
        if not (current_owner() or "").startswith("plugin-dir "):
            return None
        served = self._served()[0].get(fullname)
        if served is None:
            return None
        note_foreign(fullname)
        return ModuleSpec(fullname, _WholeLoader(served))  # type: ignore[arg-type]  # as above

    def _served(self) -> tuple[dict[str, PublishedModule], dict[str, list[Component]]]:
        """Return the whole modules that plugins serve, and the components, each by path."""
        self._is_asking = True
        try:
            served: dict[str, list[Component]] = {}
            for component in get_manager().components():
                for alias in component.spec.import_aliases:
                    served.setdefault(alias, []).append(component)
            return published_modules(get_manager()), served
        finally:
            self._is_asking = False


class _WholeLoader(AliasLoader):
    def __init__(self, served: PublishedModule) -> None:
        super().__init__(served.target)
        self._served = served

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = self._served.load()
        self._real_spec = module.__spec__
        return module


class _ServedLoader:
    def __init__(self, components: list[Component]) -> None:
        self.components = components

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _ServedModule(spec.name, self.components)

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "Served by " + ", ".join(sorted({str(c.origin) for c in self.components}))


class _ServedModule(ModuleType):
    """A module without code of its own: its attributes are those of the plugin's modules."""

    def __init__(self, name: str, components: list[Component]) -> None:
        super().__init__(name)
        self._components = components

    def __getattr__(self, name: str) -> Any:  # Any: a module's attribute
        if not name.startswith("__"):
            for component in self._components:
                if component.spec.target.rpartition(":")[2] == name:
                    return component.load()
            for component in self._components:
                module = importlib.import_module(component.spec.target.partition(":")[0])
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _missing(what: str, distribution: str) -> str:
    return (
        f"{what} is part of {distribution}, which is not installed or not in use. "
        f"{known.how_to_get(distribution)}"
    )


def _install_finder() -> None:
    if not any(isinstance(finder, PublishedPathFinder) for finder in sys.meta_path):
        sys.meta_path.append(PublishedPathFinder())


_install_finder()
