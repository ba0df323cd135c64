"""A folder as plugins: each module or package in it becomes one, and nothing is copied.

The folder gets a package name of its own, made from its path, so that a module has the same name in
every process, relative imports work, and ``workflow.py`` here and ``workflow.py`` there are two. A
plain ``import sibling`` finds the neighbour through ``SiblingFinder``, last of all finders.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import PluginError
from trinity.extend.aliases import AliasLoader
from trinity.extend.discovery import FoundPlugin
from trinity.extend.record import PluginRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["DEFAULT_FOLDER", "folder_plugins"]

DEFAULT_FOLDER = Path(__file__).parent.parent / "plugins"  # published; an importable package


def folder_plugins(folder: str | Path) -> list[FoundPlugin]:
    """Return one plugin for each module and package of the folder, without importing any.

    Raises:
        PluginError: there is no such folder.
    """
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise PluginError(
            f"the plugin folder {str(folder)!r} does not exist (looked at {root}). "
            "Correct --plugin-dir or TRINITY_PLUGIN_DIRS."
        )
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
        for path in sorted(root.iterdir())
        if _is_plugin(path)
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


class SiblingFinder:
    """Answers ``import sibling`` with the folder's module, if nothing else has that name."""

    def __init__(self, root: Path, package: str) -> None:
        self.root = root
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec whose module is the one loaded under the folder's package."""
        if path is not None or "." in fullname:
            return None
        here = self.root / fullname
        if not (here.with_suffix(".py").is_file() or (here / "__init__.py").is_file()):
            return None
        loader = AliasLoader(f"{self.package}.{fullname}")
        return ModuleSpec(fullname, loader)  # type: ignore[arg-type]  # importlib.abc is slow
