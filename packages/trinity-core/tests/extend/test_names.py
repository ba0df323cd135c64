"""Who is meant by a name: the nearer, else the only one, else an error."""

from __future__ import annotations

import pytest
from trinity.errors import ConflictError, PluginError, UnknownComponentError
from trinity.extend import Registry, set_manager

GIVES = """
from trinity.extend import ComponentSpec, hookimpl

@hookimpl
def trinity_advantage_fns():
    return {{"{name}": ComponentSpec("{module}:Part", aliases=({aliases!r},))}}
"""


@pytest.fixture
def two(site):
    for number in ("one", "two"):
        source = GIVES.format(name="shared", module=f"parts_{number}", aliases=f"also_{number}")
        site.plugin(number, source)
        site.module(f"parts_{number}", "class Part:\n    pass\n")
    return site


def test_a_name_given_twice_is_an_error_at_use_only(two, golden):
    manager = two.discover()
    assert [record.state for record in manager.records] == ["ok", "ok"]
    with pytest.raises(ConflictError) as raised:
        manager.find("advantage_fn", "shared")
    golden(str(raised.value), "plugin_name_clash")


@pytest.mark.parametrize("owner", ["trinity-two", "two", "Trinity_Two"])
def test_the_distribution_before_a_slash_is_always_unambiguous(two, owner):
    part = two.discover().load("advantage_fn", f"{owner}/shared")
    assert part.__module__ == "parts_two"


@pytest.mark.parametrize("key", ["shared", "advantage_fn/shared"])
def test_prefer_chooses(two, key):
    manager = two.discover(prefer={key: "trinity-two"})
    assert manager.load("advantage_fn", "shared").__module__ == "parts_two"


def test_a_disabled_plugin_clashes_with_nobody(two):
    manager = two.discover(disabled=["one"])
    assert manager.load("advantage_fn", "shared").__module__ == "parts_two"


def test_an_alias_finds_its_component(two):
    manager = two.discover()
    assert manager.find("advantage_fn", "also_two").name == "shared"
    assert manager.names("advantage_fn") == ["also_one", "also_two", "shared"]


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(two, golden):
    with pytest.raises(UnknownComponentError) as raised:
        two.discover().find("advantage_fn", "sharde")
    golden(str(raised.value), "plugin_unknown_name")


def test_an_unknown_kind_is_answered_with_the_list(two):
    with pytest.raises(UnknownComponentError, match="Did you mean 'advantage_fn'"):
        two.discover().find("advantage_fns", "shared")


def test_a_known_distribution_is_named_with_its_install_line(site):
    with pytest.raises(UnknownComponentError) as raised:
        site.discover().find("workflow", "alfworld_workflow")
    assert str(raised.value).endswith(
        "It is part of trinity-envs-alfworld. Run: python -m pip install trinity-envs-alfworld "
        "(in a clone: -e plugins/trinity-envs-alfworld)"
    )


def test_the_broken_plugin_that_gives_the_name_is_named(site, golden):
    site.plugin("typo", GIVES.format(name="lost", module="m", aliases="") + TYPO)
    with pytest.raises(UnknownComponentError) as raised:
        site.discover().find("advantage_fn", "lost")
    golden(str(raised.value), "plugin_unknown_name_of_broken")


def test_a_broken_plugin_of_a_known_distribution_is_named(site):
    site.plugin("opmd", "1 / 0", distribution="trinity-algo-opmd")
    with pytest.raises(UnknownComponentError, match="which is broken: ZeroDivisionError"):
        site.discover().find("advantage_fn", "opmd")


def test_plugins_that_could_not_be_asked_are_listed(site):
    site.plugin("mute", "1 / 0")
    with pytest.raises(UnknownComponentError) as raised:
        site.discover().find("workflow", "x")
    assert "did not load: mute (trinity-mute 1.0) is broken." in str(raised.value)


@pytest.mark.parametrize("path", ["parts_one:Part", "parts_one.Part"])
def test_a_dotted_path_is_a_name(two, path):
    assert two.discover().load("advantage_fn", path).__module__ == "parts_one"


def test_a_class_in_hand_is_a_name(site):
    class Mine:
        pass

    component = site.discover().find("workflow", Mine)
    assert component.load() is Mine
    assert str(component.origin).startswith("your class ")


def test_a_component_that_cannot_be_loaded_says_whose_it_is(site, golden):
    site.plugin("hollow", GIVES.format(name="hollow", module="no_such_module", aliases="h"))
    with pytest.raises(PluginError) as raised:
        site.discover().load("advantage_fn", "hollow")
    golden(str(raised.value), "plugin_component_failure")


def test_a_deprecated_component_says_what_to_use(site):
    site.plugin(
        "old",
        """
        from trinity.extend import ComponentSpec, hookimpl

        @hookimpl
        def trinity_workflows():
            return {"old": ComponentSpec("collections:Counter", deprecated="use new")}
        """,
    )
    with pytest.warns(DeprecationWarning, match="'old' is deprecated: use new"):
        site.discover().load("workflow", "old")


def test_a_class_of_the_users_script_shadows_a_distributions(dull, capsys):
    manager = dull.discover()
    set_manager(manager)
    workflows = Registry("workflows", kind="workflow")

    @workflows.register_module("dull")
    class Mine:
        pass

    assert manager.load("workflow", "dull") is Mine
    assert manager.load("workflow", "trinity-dull/dull").__name__ == "Dull"
    assert capsys.readouterr().err.count("it shadows that of trinity-dull 1.0") == 1
    (record,) = manager.records
    assert record.state == "shadowed"
    assert record.message.startswith("shadowed: workflow/dull by your class ")


TYPO = """

@hookimpl
def trinity_workflow():
    return {}
"""
