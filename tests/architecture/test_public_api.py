"""What is public is listed, exists, and is written down once."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

API = Path(__file__).parents[2] / "docs/api"
PUBLIC = ("trinity.extend", "trinity.common", "trinity.algorithm")


def public_modules() -> list[str]:
    """Return the names of all modules of the public packages that no underscore hides."""
    found = ["trinity", *PUBLIC]
    for name in PUBLIC:
        package = importlib.import_module(name)
        found += [module.name for module in pkgutil.walk_packages(package.__path__, name + ".")]
    return [name for name in found if not any(part.startswith("_") for part in name.split("."))]


def public_packages() -> list[str]:
    """Return those of them that hold modules; an empty path serves published names alone."""
    modules = {name: importlib.import_module(name) for name in public_modules()}
    return [name for name, module in modules.items() if list(getattr(module, "__path__", ()))]


def test_every_name_in_all_exists_and_is_listed_once() -> None:
    modules = [importlib.import_module(name) for name in public_modules()]

    assert [
        f"{module.__name__}.{entry}"
        for module in modules
        for entry in listed(module)
        if not resolves(module, entry) or listed(module).count(entry) > 1
    ] == []


def test_the_public_names_are_those_written_down(golden: Callable[..., None]) -> None:
    names = {
        package: sorted(listed(importlib.import_module(package))) for package in public_packages()
    }
    lines = [f"{package}.{name}" for package in names for name in names[package]]

    golden("\n".join(lines), "public_api")


def test_the_pages_of_the_python_interface_hold_every_public_class() -> None:
    public = [importlib.import_module(name) for name in public_packages()]
    classes = [getattr(m, n) for m in public for n in listed(m) if resolves(m, n)]
    packages = {module.__name__ for module in public} & documented()
    held = {name for m in public if m.__name__ in packages for name in listed(m)}

    missing = {
        f"{cls.__module__}.{cls.__name__}"
        for cls in classes
        if isinstance(cls, type) and cls.__module__ not in documented() and cls.__name__ not in held
    }

    assert missing == set()


def listed(module: ModuleType) -> list[str]:
    """Return ``__all__``, which a package and a module with a page of its own must have."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    is_public = hasattr(module, "__path__") or module.__name__ in documented()
    assert hasattr(module, "__all__") or not (is_public and own), (
        f"{module.__name__} needs __all__: {own}"
    )
    return list(getattr(module, "__all__", []))


@cache
def documented() -> set[str]:
    """Return the modules that the pages of the Python interface show."""
    pages = "".join(page.read_text("utf-8") for page in API.glob("*.md"))
    return set(re.findall(r"automodule:: (\S+)", pages))


def resolves(module: ModuleType, entry: str) -> bool:
    """Return whether a public name is there; one of a missing plugin may name its install line."""
    try:
        getattr(module, entry)
    except AttributeError:
        return False
    except ImportError as error:
        return "pip install" in str(error)
    return True
