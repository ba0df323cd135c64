"""Published import paths lead to plugins, or to the line that installs them."""

from __future__ import annotations

import importlib
import sys

import pytest
from trinity.extend import published_class, set_manager

ALFWORLD = "trinity.common.workflows.envs.alfworld.alfworld_workflow"


@pytest.fixture
def forget(monkeypatch):
    """Take published paths out of what is imported, for the test and after it."""
    for name in _served_names():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in _served_names():
        del sys.modules[name]


def _served_names():
    return [name for name in sys.modules if ".envs" in name or name.endswith(".opmd")]


@pytest.fixture
def served(site, forget):
    site.plugin(
        "text",
        f"""
        from trinity.extend import ComponentSpec, hookimpl

        @hookimpl
        def trinity_workflows():
            target = "text_parts:AlfworldWorkflow"
            return {{"text": ComponentSpec(target, import_aliases=("{ALFWORLD}",))}}
        """,
    )
    site.module("text_parts", "class AlfworldWorkflow:\n    pass\n\nHELPER = 7\n")
    set_manager(site.discover())
    return site


def test_a_published_path_is_served_by_the_plugin(served):
    module = importlib.import_module(ALFWORLD)
    assert module.AlfworldWorkflow is importlib.import_module("text_parts").AlfworldWorkflow
    assert module.HELPER == 7
    with pytest.raises(ImportError):
        exec(f"from {ALFWORLD} import NoSuchThing")


def test_a_published_path_without_its_plugin_is_an_import_error_with_the_pip_line(
    site, forget, golden
):
    set_manager(site.discover())
    with pytest.raises(ImportError) as raised:
        importlib.import_module(ALFWORLD)
    golden(str(raised.value), "plugin_published_path")


def test_a_path_that_nobody_serves_is_not_found(site):
    set_manager(site.discover())
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'trinity\.common\.no_such'"):
        importlib.import_module("trinity.common.no_such")


def test_a_published_class_comes_from_the_plugin(served):
    assert published_class("workflow", "AlfworldWorkflow").__module__ == "text_parts"


def test_a_published_class_without_its_plugin_names_the_pip_line(site):
    set_manager(site.discover())
    with pytest.raises(ImportError, match="python -m pip install trinity-envs-webshop"):
        published_class("workflow", "WebShopWorkflow")
    with pytest.raises(AttributeError):
        published_class("workflow", "NoSuchWorkflow")
