"""Published import paths whose code lives in plugins: whole modules, and classes of components.

One finder, last of all, answers an import inside ``trinity`` that nothing else answers: with a
module that a plugin serves there, with one whose attributes come from the plugin, or with the line
that installs the plugin.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trinity.errors import PluginError, did_you_mean
from trinity.extend import known
from trinity.extend.hook_call import current_owner
from trinity.extend.importing import FOREIGN, importing_as
from trinity.extend.manager import get_manager
from trinity.extend.plugin_dir import AliasLoader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from trinity.extend.component import Component
    from trinity.extend.manager import PluginManager
    from trinity.extend.record import PluginRecord

MOVED = {  # modules of 0.1 whose names are in another one now
    "trinity.algorithm.normalizer": "trinity.algorithm.ops",
    "trinity.common.experience_values": "trinity.common.value_checks",
    "trinity.common.size_limits": "trinity.common.value_checks",
    "trinity.common.weight_digest": "trinity.common.ports.trainer",
}


@dataclass(frozen=True, kw_only=True)
class PublishedModule:
    """One path, and the plugin's module that is found under it."""

    path: str  # such as "trinity.utils.log"
    target: str  # the module's real name
    owner: PluginRecord

    def load(self) -> ModuleType:
        """Return the real module; a name that it lacks is answered with those that it has."""
        with importing_as(self.owner.key):
            module = importlib.import_module(self.target)
        if not self.target.startswith("trinity."):  # the core's own modules stay as they are
            module.__dict__.setdefault("__getattr__", _answering(module, self))
        return module


def published_modules(manager: PluginManager) -> dict[str, PublishedModule]:
    """Return what the plugins in use serve, by path.

    Raises:
        PluginError: two plugins serve one path.
    """
    served: dict[str, PublishedModule] = {}
    for owner, given in manager.call("trinity_published_modules"):
        for path, target in given.items():
            module = PublishedModule(path=path, target=target, owner=owner)
            other = served.setdefault(path, module)
            if other is not module:
                raise PluginError(_twice(module, other), name=path)
    return served


def published_name(path: str, name: str, *, kind: str = "") -> Any:  # Any: whatever a plugin has
    """Return what a plugin serves under a name that the core's module at ``path`` lacks.

    For the ``__getattr__`` of that module, which may hold the classes of a kind, too.

    Raises:
        AttributeError: no plugin does.
        ImportError: a plugin that is not installed has it; the message holds the pip line.
    """
    if not name.startswith("_"):
        served = published_modules(get_manager()).get(path)
        if served is not None:
            found = vars(served.load())
            if name in found:
                return found[name]
        if kind:
            return published_class(kind, name)
    raise AttributeError(f"module {path!r} has no attribute {name!r}")


def _answering(module: ModuleType, served: PublishedModule) -> Any:  # Any: a module's __getattr__
    def answer(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {served.path!r} has no attribute {name!r}")
        names = sorted(getattr(module, "__all__", ()))
        text = (
            f"{served.path}, served by {served.owner.origin}, has no {name!r}."
            f"{did_you_mean(name, names)} It has: {', '.join(names)}."
        )
        if _is_import(sys._getframe(1)):
            raise PluginError(text, name=served.path)
        raise AttributeError(text)

    return answer


def _is_import(frame: FrameType) -> bool:
    """Tell whether the frame is in ``from module import name``: Python drops an AttributeError."""
    from dis import opname

    return opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def _twice(module: PublishedModule, other: PublishedModule) -> str:
    first, second = sorted((module.owner, other.owner), key=lambda record: record.key)
    return (
        f"the published module {module.path} is registered twice: by {first.origin} (plugin "
        f"{first.name}) and by {second.origin} (plugin {second.name}). Run with -P "
        f"no:{first.name}, or with -P no:{second.name}."
    )


def published_class(kind: str, class_name: str) -> type:
    """Return the plugin's class with this name, for the ``__getattr__`` of a published module.

    Raises:
        AttributeError: no plugin has it, and none of ours is known to.
        ImportError: a plugin that is not installed has it; the message holds the pip line.
    """
    for component in get_manager().components(kind):
        if component.spec.target.rpartition(":")[2] == class_name:
            return component.load()
    distribution = known.distribution_of("classes", class_name)
    if distribution is None:
        raise AttributeError(f"no {kind} class is named {class_name!r}")
    raise PluginError(_missing(class_name, distribution))


class PublishedPathFinder:
    """Finds what plugins serve below ``trinity``; beside it, for the users' own files alone.

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
        if fullname in MOVED:
            return ModuleSpec(fullname, AliasLoader(MOVED[fullname]))  # type: ignore[arg-type]
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
        distribution = known.distribution_of("import_paths", fullname)
        if distribution is not None:
            raise PluginError(_missing(fullname, distribution), name=fullname)
        instead = known.stand_in_of(fullname)
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
        if not (current_owner() or "").startswith(("plugin-dir ", "the dotted path ")):
            return None
        served = self._served()[0].get(fullname)
        if served is None:
            return None
        FOREIGN.add(fullname)
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


if not any(isinstance(finder, PublishedPathFinder) for finder in sys.meta_path):
    sys.meta_path.append(PublishedPathFinder())
