"""Folders that are no run directories, and the pages that plugins bring for them.

A plugin module names its views by kind: ``TRINITY_FOLDER_VIEWS = {"mine": "my_package:VIEW"}``.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, PackageLoader, PrefixLoader
from trinity.extend import get_manager
from trinity.extend.failure import described_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from jinja2 import BaseLoader
    from trinity.extend.record import PluginRecord

    # The folder and the query of the address, to the values of a template (Any: what it draws).
    Content = Callable[[Path, Mapping[str, str]], dict[str, Any]]

__all__ = ["NAME", "Folder", "FolderView", "find_folders", "folder_views", "template_loader"]

NAME = "TRINITY_FOLDER_VIEWS"
_PATTERNS = ("", "*", "*/*")  # where a folder stands below one that is named
logger = logging.getLogger("trinity.view")


@dataclass(frozen=True, kw_only=True)
class FolderView:
    """The pages of one kind of folder.

    Attributes:
        title: of a list of such folders.
        mark: name of the file that such a folder has.
        package: in whose folder ``templates`` the templates are. They extend ``base.html``, and get
            ``own``, the address of the folder, beside the values of their page.
        pages: by address below the folder's: the template, and what gives its values.
    """

    title: str
    mark: str
    package: str
    pages: Mapping[str, tuple[str, Content]]


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder, and the kind of the view that it is shown with."""

    path: Path
    kind: str
    view: FolderView

    @property
    def name(self) -> str:
        """Return what the list of folders calls it."""
        return f"{self.view.title}: {self.path.name or self.path.absolute().name}"


def folder_views() -> dict[str, FolderView]:
    """Return the views of the plugins in use by kind; one that cannot be imported is left out."""
    found: dict[str, FolderView] = {}
    for record in get_manager().records:
        if record.is_usable:
            given: Mapping[str, str] = getattr(importlib.import_module(record.module), NAME, {})
            for kind, target in given.items():
                view = _loaded(record, kind, target)
                if view is not None:
                    found.setdefault(kind, view)
    return found


def find_folders(named: Sequence[Path], views: Mapping[str, FolderView]) -> list[Folder]:
    """Return the folders that a view is for: those named, and those up to two levels below."""
    return [
        Folder(path=mark.parent, kind=kind, view=view)
        for path in named
        for kind, view in views.items()
        for pattern in _PATTERNS
        for mark in sorted(path.glob(f"{pattern}/{view.mark}".lstrip("/")))
        if mark.is_file()
    ]


def template_loader(packages: Mapping[str, str]) -> BaseLoader:
    """Return the viewer's own templates, and those of the packages of views as ``KIND/NAME``."""
    others = {kind: PackageLoader(package) for kind, package in packages.items()}
    return ChoiceLoader([PackageLoader("trinity_studio.view"), PrefixLoader(others)])


def _loaded(record: PluginRecord, kind: str, target: str) -> FolderView | None:
    module, _, name = target.partition(":")
    try:
        view = getattr(importlib.import_module(module), name)
        if not isinstance(view, FolderView):
            raise TypeError(f"{target} is no FolderView")
    except Exception as error:  # noqa: BLE001 -- around one plugin
        logger.warning(
            "the view %r of plugin %s cannot be used: %s. Leave it out with -P no:%s",
            *(kind, record.label, described_failure(error), record.name),
        )
        return None
    return view
