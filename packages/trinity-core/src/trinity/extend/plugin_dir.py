"""A folder as plugins: each module or package in it becomes one, and nothing is copied.

``import sibling`` works in it: each folder's modules find their own neighbours.

The folder gets a package name of its own, made from its path, so that a module has the same name in
every process, relative imports work, and ``workflow.py`` here and ``workflow.py`` there are two. A
plain ``import sibling`` finds the neighbour, after all other finders.

A neighbour is known to Python by its bare name only while a plugin of its folder is imported: two
folders may both have a ``helper.py``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import PluginError
from trinity.extend.discovery import FoundPlugin
from trinity.extend.hook_call import current_owner
from trinity.extend.record import PluginRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType


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
    try:
        for finder in _finders():
            finder.forget()
        yield
    finally:
        for finder in _finders():
            finder.forget()


def _finders() -> list[SiblingFinder]:
    return [finder for finder in sys.meta_path if isinstance(finder, SiblingFinder)]


DEFAULT_FOLDER = Path(__file__).parent.parent / "plugins"  # published; an importable package
_DEFAULT_PACKAGE = "trinity.plugins"


def folder_plugins(folder: str | Path) -> list[FoundPlugin]:
    """Return one plugin for each module and package of the folder, without importing any.

    Raises:
        PluginError: there is no such folder.
    """
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        what = "is a file, not a folder" if root.exists() else "does not exist"
        raise PluginError(
            f"the plugin folder {str(folder)!r} {what} (looked at {root}). "
            "Correct --plugin-dir or TRINITY_PLUGIN_DIRS."
        )
    paths = [path for path in sorted(root.iterdir()) if _is_plugin(path)]
    if not paths and root != DEFAULT_FOLDER.resolve():
        sys.stderr.write(f"trinity: the plugin folder {str(folder)!r} holds no module or package\n")
    package = _package_for(root)
    return [
        FoundPlugin(
            record=PluginRecord(
                name=path.stem,
                distribution=None,
                version=None,
                module=f"{package}.{path.stem}",
                source="plugin-dir",
                path=str(path),
            ),
            distribution=None,
        )
        for path in paths
    ]


def stand_in(folder: Path, real: Path) -> Path:
    """Return ``real``, whose modules from now on have the names of those in ``folder``.

    Another machine's folder, unpacked here, has to look like that one: a name that one process
    sends is the name that the other imports.
    """
    root, name = real.resolve(), _package_name(folder)
    if root == folder:
        return real
    if name == _DEFAULT_PACKAGE:
        importlib.import_module(name).__path__ = [str(root)]
        sys.meta_path.append(SiblingFinder(root, name))
    else:
        _make_package(name, root)
    return real


def _is_plugin(path: Path) -> bool:
    if path.name.startswith(("_", ".")):
        return False
    return path.suffix == ".py" or (path / "__init__.py").is_file()


def _package_for(root: Path) -> str:
    """Return the name of the package that stands for the folder, making it if need be."""
    finder = finder_of(root)
    if finder is not None:
        return finder.package
    name = _package_name(root)
    if name != _DEFAULT_PACKAGE:
        _make_package(name, root)
    return name


def _package_name(root: Path) -> str:
    if root == DEFAULT_FOLDER.resolve():
        return _DEFAULT_PACKAGE
    return f"trinity_plugin_dir_{hashlib.sha256(str(root).encode()).hexdigest()[:10]}"


def _make_package(name: str, root: Path) -> None:
    spec = ModuleSpec(name, loader=None, is_package=True)
    spec.submodule_search_locations = [str(root)]
    sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.meta_path.append(SiblingFinder(root, name))
