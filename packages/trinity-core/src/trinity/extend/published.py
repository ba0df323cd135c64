"""Published modules that plugins serve as a whole: which path is whose, and what a module lacks."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import PluginError, did_you_mean

if TYPE_CHECKING:
    from types import FrameType, ModuleType

    from trinity.extend.manager import PluginManager
    from trinity.extend.record import PluginRecord

__all__ = ["PublishedModule", "published_modules", "published_name"]

HOOK = "trinity_published_modules"


@dataclass(frozen=True, kw_only=True)
class PublishedModule:
    """One path, and the plugin's module that is found under it."""

    path: str  # such as "trinity.utils.log"
    target: str  # the module's real name
    owner: PluginRecord

    def load(self) -> ModuleType:
        """Return the real module; a name that it lacks is answered with those that it has."""
        from trinity.extend.held import importing_as

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
    for owner, given in manager.call(HOOK):
        for path, target in given.items():
            module = PublishedModule(path=path, target=target, owner=owner)
            other = served.setdefault(path, module)
            if other is not module:
                raise PluginError(_twice(module, other), name=path)
    return served


def published_name(path: str, name: str) -> Any:  # Any: whatever the plugin's module has
    """Return what a plugin serves under a name that the core's module at ``path`` lacks.

    For the ``__getattr__`` of that module.

    Raises:
        AttributeError: no plugin does.
    """
    if not name.startswith("_"):
        from trinity.extend.manager import get_manager

        served = published_modules(get_manager()).get(path)
        if served is not None:
            found = vars(served.load())
            if name in found:
                return found[name]
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
