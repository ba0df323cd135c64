"""The plugin sets of all workers are the driver's, or the run does not start."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest
from trinity.errors import PluginError
from trinity.runtime.ray.worker import WorkerFacts, check_plugin_sets, plugin_lines


@pytest.fixture
def facts(dull):
    """Return what a worker with the same plugin says."""
    manager = dull.discover()
    return WorkerFacts(
        name="trainer",
        node="ab12",
        host="worker-7",
        pid=7,
        digest=manager.digest(),
        plugins=plugin_lines(manager),
        seconds={},
    )


def test_equal_sets_pass(dull, facts):
    check_plugin_sets([facts, facts], manager=dull.discover())


def test_another_version_is_named_with_its_node_and_room(dull, facts, golden):
    others = tuple(line.replace("1.0", "2.0") for line in facts.plugins)
    other = replace(facts, name="engine-0", digest="other", plugins=others)
    with pytest.raises(PluginError) as raised:
        check_plugin_sets([facts, other], manager=dull.discover())
    source = facts.plugins[0].partition("source ")[2].rstrip(")")
    golden(str(raised.value), "ray_other_plugins", HERE=platform.node(), HASH=source)


def test_a_plugin_that_only_the_driver_has_is_named(dull, facts):
    other = replace(facts, digest="other", plugins=())
    with pytest.raises(
        PluginError, match=r"there nothing that is not here; here trinity-dull 1\.0"
    ):
        check_plugin_sets([other], manager=dull.discover())


def test_on_the_drivers_own_node_the_files_have_changed_meanwhile(dull, facts):
    other = replace(facts, digest="other", host=platform.node())
    with pytest.raises(PluginError, match="start it again"):
        check_plugin_sets([other], manager=dull.discover())
