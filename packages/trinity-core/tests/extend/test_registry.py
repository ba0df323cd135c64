"""The decorator feeds the same table as the hooks; a registry of one's own stands alone."""

from __future__ import annotations

import sys

import pytest
from trinity.errors import ConflictError, UnknownComponentError
from trinity.extend import Registry, set_manager


@pytest.fixture
def workflows(dull):
    set_manager(dull.discover())
    return Registry("workflows", kind="workflow")


def made(name: str, module: str = "__main__") -> type:
    return type(name, (), {"__module__": module})


def test_a_registered_class_is_found_by_its_name(workflows):
    mine = workflows.register_module("mine", made("Mine"))
    assert workflows.get("mine") is mine
    assert "mine" in workflows
    assert workflows.names() == ["dull", "mine"]


def test_a_cell_that_runs_twice_replaces_its_class(workflows):
    workflows.register_module("mine")(made("Mine"))
    second = workflows.register_module("mine")(made("Mine"))
    assert workflows.get("mine") is second


def test_another_class_under_the_name_is_an_error_that_names_both(workflows, golden):
    workflows.register_module("mine")(made("Mine"))
    with pytest.raises(ConflictError) as raised:
        workflows.register_module("mine")(made("Other"))
    golden(str(raised.value), "plugin_registered_twice")


def test_force_replaces_another_class(workflows):
    workflows.register_module("mine")(made("Mine"))
    other = workflows.register_module("mine", force=True)(made("Other"))
    assert workflows.get("mine") is other


def test_a_decorated_class_of_a_plugin_is_the_plugins_and_not_listed_twice(dull):
    dull.module(
        "dull_parts",
        """
        from trinity.extend import Registry

        @Registry("workflows", kind="workflow").register_module("dull")
        class Dull:
            pass
        """,
    )
    manager = dull.discover()
    set_manager(manager)
    assert manager.load("workflow", "dull").__name__ == "Dull"
    assert len(manager.components("workflow")) == 1
    assert [record.state for record in manager.records] == ["ok"]


def test_a_plugins_class_that_a_script_imports_first_is_still_the_plugins(site, dull_source):
    module = site.plugin(
        "early",
        """
        from trinity.extend import Registry

        @Registry("workflows", kind="workflow").register_module("early")
        class Early:
            pass
        """,
    )
    manager = site.discover()
    set_manager(manager)
    __import__(module)
    assert str(manager.find("workflow", "early").origin) == "trinity-early 1.0"


def test_a_standalone_registry_imports_its_default_mapping_on_get_only(site):
    site.module("lazy_part", "class Part:\n    pass\n")
    registry = Registry("workflows", default_mapping={"step_wise": "lazy_part.Part"})
    assert "step_wise" in registry
    assert "lazy_part" not in sys.modules
    assert registry.get("step_wise").__name__ == "Part"


def test_a_standalone_registry_takes_classes_and_dotted_paths(site):
    registry = Registry("things", default_mapping={})
    mine = registry.register_module("mine", made("Mine"))
    assert registry.get("mine") is mine
    assert registry.get("collections.Counter").__name__ == "Counter"
    with pytest.raises(ConflictError, match="'mine' of things is registered twice"):
        registry.register_module("mine", made("Other"))


def test_a_standalone_registry_answers_an_unknown_name_with_the_list():
    registry = Registry("workflows", default_mapping={"step_wise": "m.C"})
    with pytest.raises(UnknownComponentError, match="Did you mean 'step_wise'"):
        registry.get("step_wize")
