"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import pytest

PACKAGES = (
    "trinity",
    "trinity_algorithms",
    "trinity_compat_rft",
    "trinity_debug",
    "trinity_envs_harbor",
    "trinity_envs_webshop",
    "trinity_lab",
    "trinity_ledger",
    "trinity_serve",
    "trinity_studio",
    "trinity_testing",
    "trinity_tinker",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_examples_of_a_package_hold(package: str) -> None:
    path = importlib.import_module(package).__path__
    names = [package, *(module.name for module in pkgutil.walk_packages(path, f"{package}."))]
    modules = [importlib.import_module(name) for name in names if has_examples(name)]

    assert [module.__name__ for module in modules if doctest.testmod(module).failed] == []


def has_examples(module: str) -> bool:
    """Return whether the text of a module has one; to look for them in all takes ten seconds."""
    spec = importlib.util.find_spec(module)
    return ">>> " in Path(spec.origin).read_text(encoding="utf-8")
