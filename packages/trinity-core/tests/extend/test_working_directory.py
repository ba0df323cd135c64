"""A dotted path leads below the working directory, as with ``python -m``."""

from __future__ import annotations

import logging
import sys

import pytest
from trinity.errors import PluginError
from trinity.extend import PluginManager

SOURCE = "class Mine:\n    pass\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return the working directory, which holds a package without ``__init__.py``."""
    (tmp_path / "my_examples" / "deep").mkdir(parents=True)
    (tmp_path / "my_examples" / "deep" / "parts.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_examples"]:
        del sys.modules[name]


@pytest.mark.parametrize("path", ["my_examples.deep.parts.Mine", "my_examples.deep.parts:Mine"])
def test_a_class_below_the_working_directory_is_found_and_said_once(here, caplog, path) -> None:
    manager = PluginManager.discover(env={}, entry_points=[])

    with caplog.at_level(logging.WARNING):
        found = manager.load("workflow", path)
        again = manager.load("workflow", path)

    assert found is again
    assert found.__name__ == "Mine"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"my_examples is looked for in the working directory, {here}"


def test_a_folder_does_not_hide_an_installed_package(here) -> None:
    (here / "json").mkdir()
    (here / "json" / "decoder.py").write_text(SOURCE)
    manager = PluginManager.discover(env={}, entry_points=[])

    assert manager.load("workflow", "json.decoder.JSONDecoder").__module__ == "json.decoder"
    assert str(here) not in sys.path


def test_what_is_nowhere_is_told_with_where_it_was_looked_for(here) -> None:
    manager = PluginManager.discover(env={}, entry_points=[])

    with pytest.raises(PluginError, match="below the working directory"):
        manager.load("workflow", "my_examples.deep.nothing.Mine")


def test_a_folder_of_the_same_name_elsewhere_is_joined_with_the_one_here(
    here, tmp_path_factory, monkeypatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "my_examples").mkdir()
    (elsewhere / "my_examples" / "others.py").write_text("class Theirs:\n    pass\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(elsewhere)])
    manager = PluginManager.discover(env={}, entry_points=[])

    assert manager.load("workflow", "my_examples.others.Theirs").__name__ == "Theirs"
    assert manager.load("workflow", "my_examples.deep.parts.Mine").__name__ == "Mine"
