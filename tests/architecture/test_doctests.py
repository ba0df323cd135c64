"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("trinity", "trinity_testing", "trinity_algo_opmd", "trinity_algorithms")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_examples_of_a_package_hold(package: str) -> None:
    path = importlib.import_module(package).__path__
    names = [package, *(module.name for module in pkgutil.walk_packages(path, f"{package}."))]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]

    assert [module.__name__ for module in modules if doctest.testmod(module).failed] == []
