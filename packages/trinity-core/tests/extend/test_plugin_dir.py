"""A folder's modules and packages are plugins, in place."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import sys

import pytest
from trinity.errors import PluginError
from trinity.extend import set_manager
from trinity.extend.plugin_dir import DEFAULT_FOLDER, stand_in

DECORATED = """
from trinity.extend import Registry
{extra}

@Registry("workflows", kind="workflow").register_module("{name}")
class Mine:
    value = {value}
"""


@pytest.fixture
def folder(site, tmp_path):
    path = tmp_path / "my plugins"
    path.mkdir()
    return path


def write(folder, name, *, registered="mine", value="1", extra=""):
    (folder / name).write_text(DECORATED.format(name=registered, value=value, extra=extra))


def test_a_module_of_the_folder_registers_as_a_plugin_of_its_own(site, folder):
    write(folder, "mine.py")
    manager = site.discover(plugin_dirs=[folder])
    (record,) = manager.records
    assert (record.name, record.state, record.source) == ("mine", "ok", "plugin-dir")
    assert [component.name for component in record.components] == ["mine"]
    assert str(manager.find("workflow", "mine").origin) == f"plugin-dir {folder / 'mine.py'}"


def test_the_environment_names_folders_too(site, folder):
    write(folder, "mine.py")
    manager = site.discover(env={"TRINITY_PLUGIN_DIRS": str(folder)})
    assert manager.names("workflow") == ["mine"]


def test_a_module_may_give_hooks(site, folder, dull_source):
    (folder / "hooked.py").write_text(dull_source.replace("    ", "", 1).replace("\n    ", "\n"))
    assert site.discover(plugin_dirs=[folder]).names("workflow") == ["dull"]


@pytest.mark.parametrize("statement", ["from .helper import SEVEN", "from helper import SEVEN"])
def test_siblings_are_imported_once_by_either_name(site, folder, statement):
    (folder / "helper.py").write_text("SEVEN = 7\nLOADED = []\n")
    write(folder, "mine.py", extra=statement, value="SEVEN")
    manager = site.discover(plugin_dirs=[folder])
    mine = manager.load("workflow", "mine")
    assert mine.value == 7
    package = mine.__module__.rpartition(".")[0]
    import importlib

    assert importlib.import_module("helper") is sys.modules[f"{package}.helper"]
    assert sys.modules["helper"].__name__ == f"{package}.helper"


def test_a_package_with_a_relative_import_is_a_plugin(site, folder):
    (folder / "pack").mkdir()
    (folder / "pack" / "deep.py").write_text("SEVEN = 7\n")
    write(folder, "pack/__init__.py", extra="from .deep import SEVEN", value="SEVEN")
    assert site.discover(plugin_dirs=[folder]).load("workflow", "mine").value == 7


def test_nothing_is_copied(site, folder):
    write(folder, "mine.py")
    site.discover(plugin_dirs=[folder]).names("workflow")
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "mine.py"
    ]


def test_a_module_has_the_same_name_in_another_manager_and_pickles(site, folder):
    write(folder, "mine.py")
    first = site.discover(plugin_dirs=[folder]).load("workflow", "mine")
    second = site.discover(plugin_dirs=[folder]).load("workflow", "mine")
    assert first is second
    assert pickle.loads(pickle.dumps(first)) is first


def test_a_failure_is_loud_each_time(site, folder, golden):
    (folder / "bad.py").write_text("import no_such_thing\n")
    manager = site.discover(plugin_dirs=[folder])
    for _ in range(2):
        with pytest.raises(PluginError) as raised:
            manager.names("workflow")
    golden(str(raised.value), "plugin_dir_failure", FOLDER=folder)


def test_a_folder_that_does_not_exist_is_an_error(site, tmp_path):
    with pytest.raises(PluginError, match="does not exist"):
        site.discover(plugin_dirs=[tmp_path / "nowhere"])


def test_a_module_of_the_folder_shadows_a_distributions(dull, folder, capsys):
    write(folder, "mine.py", registered="dull", value="7")
    manager = dull.discover(plugin_dirs=[folder])
    assert manager.load("workflow", "dull").value == 7
    assert "shadows that of trinity-dull 1.0" in capsys.readouterr().err
    assert {r.name: r.state for r in manager.records} == {"dull": "shadowed", "mine": "ok"}


def test_two_modules_with_one_name_for_two_classes_are_an_error(site, folder):
    from trinity.errors import ConflictError

    write(folder, "mine.py")
    write(folder, "other.py")
    with pytest.raises(ConflictError, match=r"registered twice: by plugin-dir .*mine.py and by"):
        site.discover(plugin_dirs=[folder]).find("workflow", "mine")


def test_private_files_are_siblings_and_no_plugins(site, folder):
    (folder / "_private.py").write_text("1 / 0")
    write(folder, "mine.py")
    assert [r.name for r in site.discover(plugin_dirs=[folder]).records] == ["mine"]


def test_a_narrowed_manager_adds_the_folders_of_a_run_once(site, folder):
    write(folder, "mine.py")
    manager = site.discover().narrowed(plugin_dirs=[folder, folder])
    assert [record.name for record in manager.records] == ["mine"]


def test_the_default_folder_is_used_where_none_is_named(site, monkeypatch, tmp_path):
    from trinity.extend import manager as manager_module
    from trinity.extend import plugin_dir

    default = tmp_path / "plugins"
    default.mkdir()
    write(default, "mine.py")
    monkeypatch.setattr(manager_module, "DEFAULT_FOLDER", default)
    manager = site.discover()
    set_manager(manager)
    assert f"mine (plugin-dir {default / 'mine.py'})" in manager.header()
    assert plugin_dir.DEFAULT_FOLDER.name == "plugins"


def test_a_folder_that_goes_away_hurts_no_other_plugin(site, folder, dull):
    write(folder, "mine.py")
    site.discover(plugin_dirs=[folder]).names("workflow")
    shutil.rmtree(folder)
    assert site.discover().names("workflow") == ["dull"]


def test_a_folder_stands_in_for_one_of_another_machine(site, folder, tmp_path):
    write(folder, "mine.py", value="2")
    elsewhere = tmp_path / "elsewhere" / "my plugins"
    manager = site.discover(plugin_dirs=[stand_in(elsewhere, folder)])
    mine = manager.load("workflow", "mine")
    assert mine.value == 2
    name = f"trinity_plugin_dir_{hashlib.sha256(str(elsewhere).encode()).hexdigest()[:10]}.mine"
    assert mine.__module__ == name


def test_a_folder_stands_in_for_the_published_one(site, folder, monkeypatch):
    import trinity.plugins

    monkeypatch.setattr(trinity.plugins, "__path__", list(trinity.plugins.__path__))
    write(folder, "mine.py", value="3")
    manager = site.discover(plugin_dirs=[stand_in(DEFAULT_FOLDER, folder)])
    mine = manager.load("workflow", "mine")
    assert (mine.__module__, mine.value) == ("trinity.plugins.mine", 3)
