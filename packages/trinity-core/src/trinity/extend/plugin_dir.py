"""A folder as plugins: each module or package in it becomes one, and nothing is copied.

The folder gets a package name of its own, made from its path, so that a module has the same name in
every process, relative imports work, and ``workflow.py`` here and ``workflow.py`` there are two. A
plain ``import sibling`` finds the neighbour (``siblings.py``), after all other finders.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

from trinity.errors import PluginError
from trinity.extend.discovery import FoundPlugin
from trinity.extend.record import PluginRecord
from trinity.extend.siblings import SiblingFinder

__all__ = ["DEFAULT_FOLDER", "folder_plugins"]

DEFAULT_FOLDER = Path(__file__).parent.parent / "plugins"  # published; an importable package


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
    package = "trinity.plugins" if root == DEFAULT_FOLDER.resolve() else _package_for(root)
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


def _is_plugin(path: Path) -> bool:
    if path.name.startswith(("_", ".")):
        return False
    return path.suffix == ".py" or (path / "__init__.py").is_file()


def _package_for(root: Path) -> str:
    """Return the name of the package that stands for the folder, making it if need be."""
    name = f"trinity_plugin_dir_{hashlib.sha256(str(root).encode()).hexdigest()[:10]}"
    if name not in sys.modules:
        spec = ModuleSpec(name, loader=None, is_package=True)
        spec.submodule_search_locations = [str(root)]
        sys.modules[name] = importlib.util.module_from_spec(spec)
        sys.meta_path.append(SiblingFinder(root, name))
    return name
