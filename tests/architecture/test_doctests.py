"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("trinity", "trinity_testing", "trinity_algo_opmd")


def modules() -> list[str]:
    """Return the names of all our modules, without importing more than the packages."""
    found = []
    for name in PACKAGES:
        package = importlib.import_module(name)
        found += [name, *(m.name for m in pkgutil.walk_packages(package.__path__, name + "."))]
    return [name for name in found if not name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))

    assert result.failed == 0
