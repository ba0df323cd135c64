"""A folder as plugins: each module or package in it becomes one, and nothing is copied.

The folder gets a package name of its own, made from its path, so that a module has the same name in
every process, relative imports work, and ``workflow.py`` here and ``workflow.py`` there are two. A
plain ``import sibling`` finds the neighbour (``siblings.py``), after all other finders.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

from trinity.errors import PluginError
from trinity.extend.discovery import FoundPlugin
from trinity.extend.record import PluginRecord
from trinity.extend.siblings import SiblingFinder, finder_of

__all__ = ["DEFAULT_FOLDER", "folder_plugins", "stand_in"]

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
