"""A plugin serves whole modules under published paths: real ones, and never in place of ours."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest
from trinity.extend import PluginManager, set_manager

SERVES = """
from trinity.extend import hookimpl

@hookimpl
def trinity_published_modules():
    return {served}
"""
TOOLS = """
__all__ = ["Tool", "make"]

class Tool:
    pass

def make():
    return Tool()
"""


@pytest.fixture
def serve(site):
    """Give a function that installs a plugin which serves these paths by modules of these texts."""
    before = set(sys.modules)

    def install(name, served):
        targets = {path: f"{name}_parts_{place}" for place, path in enumerate(served)}
        site.plugin(name, SERVES.format(served=targets))
        for path, text in served.items():
            site.module(targets[path], text)
        manager = site.discover()
        set_manager(manager)
        return manager

    yield install
    for name in set(sys.modules) - before:
        if name.startswith(("trinity.toolbox", "trinity.common.tools")):
            del sys.modules[name]


def test_a_served_path_is_the_plugins_own_module(serve):
    serve("box", {"trinity.toolbox.hammers": TOOLS})

    hammers = importlib.import_module("trinity.toolbox.hammers")

    assert hammers is importlib.import_module("box_parts_0")
    assert hammers is sys.modules["trinity.toolbox"].hammers
    assert hammers.__spec__.name == hammers.__name__ == "box_parts_0"


def test_the_packages_above_a_served_path_are_made(serve):
    serve("box", {"trinity.toolbox.deep.down.hammers": TOOLS})

    names: dict[str, object] = {}
    exec("from trinity.toolbox.deep.down import hammers", names)

    assert names["hammers"].Tool.__name__ == "Tool"
    assert sys.modules["trinity.toolbox.deep"].__path__ == []


def test_what_a_served_module_has_pickles_by_reference(serve):
    serve("box", {"trinity.toolbox.hammers": TOOLS})
    tool = importlib.import_module("trinity.toolbox.hammers").Tool

    assert pickle.loads(pickle.dumps(tool)) is tool
    assert b"box_parts_0" in pickle.dumps(tool)


def test_a_served_module_can_be_loaded_again(serve):
    serve("box", {"trinity.toolbox.hammers": TOOLS})
    hammers = importlib.import_module("trinity.toolbox.hammers")
    first = hammers.Tool

    assert importlib.reload(hammers) is hammers
    assert hammers.Tool is not first


def test_a_star_takes_what_the_module_lists(serve):
    serve("box", {"trinity.toolbox.hammers": TOOLS})

    names: dict[str, object] = {}
    exec("from trinity.toolbox.hammers import *", names)

    assert {"Tool", "make"} <= set(names)


def test_a_name_that_a_served_module_lacks_is_answered_with_those_it_has(serve, golden):
    serve("box", {"trinity.toolbox.hammers": TOOLS})

    with pytest.raises(ImportError) as raised:
        exec("from trinity.toolbox.hammers import Toll")

    golden(str(raised.value), "plugin_published_name_missing")


def test_to_ask_a_served_module_for_a_name_is_no_import(serve):
    serve("box", {"trinity.toolbox.hammers": TOOLS})
    hammers = importlib.import_module("trinity.toolbox.hammers")

    assert not hasattr(hammers, "Toll")
    assert not hasattr(hammers, "__no_such__")


def test_a_path_that_the_core_has_stays_the_cores(serve):
    serve("box", {"trinity.common.outcome": "VALUE = 7"})

    assert not hasattr(importlib.import_module("trinity.common.outcome"), "VALUE")


def test_a_path_that_two_plugins_serve_names_both(serve, golden):
    serve("box", {"trinity.toolbox.hammers": TOOLS})
    serve("chest", {"trinity.toolbox.hammers": TOOLS})

    with pytest.raises(ImportError) as raised:
        importlib.import_module("trinity.toolbox.hammers")

    golden(str(raised.value), "plugin_published_twice")


def test_a_plugin_that_is_left_out_serves_nothing(serve):
    manager = serve("box", {"trinity.toolbox.hammers": TOOLS})
    set_manager(manager.narrowed(disabled=["box"]))

    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("trinity.toolbox.hammers")


@pytest.mark.parametrize(
    ("path", "name", "place"),
    [
        ("trinity.algorithm.normalizer", "weight_of_part", "trinity.algorithm.ops"),
        ("trinity.common.experience_values", "TokenLimits", "trinity.common.value_checks"),
        ("trinity.common.size_limits", "shortened", "trinity.common.value_checks"),
        ("trinity.common.weight_digest", "digest_of", "trinity.common.ports.trainer"),
    ],
)
def test_a_plugin_may_import_names_from_where_they_were(path, name, place, site):
    site.plugin("earlier", f"from {path} import {name}\n")
    manager = site.discover()

    [record] = [one for one in manager.records if one.name == "earlier"]

    assert record.state == "ok", record
    assert getattr(importlib.import_module(path), name).__module__ == place


def test_a_hook_that_returns_something_else_is_named(site, capsys):
    site.plugin("odd", SERVES.format(served="{'trinity.toolbox': 7}"))

    assert site.discover().call("trinity_published_modules") == []
    assert "published paths to names of modules" in capsys.readouterr().err


def test_a_plugin_folder_serves_paths_in_another_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        SERVES.format(served="{'trinity.toolbox.hammers': f'{__name__}_parts'}")
    )
    (tmp_path / "mine_parts.py").write_text(TOOLS)
    code = "from trinity.toolbox.hammers import Tool; print(Tool.__module__)"
    module = PluginManager.discover(env={}, plugin_dirs=[tmp_path]).found[-1].record.module

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TRINITY_PLUGIN_DIRS": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.strip() == module
