"""What messages advise exists: each distribution gives what they say it does."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest
import trinity.extend
from trinity.errors import UnknownComponentError
from trinity.extend import KINDS, PluginManager, known, set_manager

ROOT = Path(__file__).parents[4]
TABLES = tomllib.loads(
    (Path(trinity.extend.__file__).parent / "known_distributions.toml").read_text("utf-8")
)
HERE = {
    tomllib.loads(path.read_text("utf-8"))["project"]["name"]
    for path in ROOT.glob("p*/*/pyproject.toml")
}


# The tests of one run without vLLM, a run would not; the engine of the other is compiled.
NOT_INSTALLED = {"trinity-engine-vllm", "trinity-envs-alfworld"}


@pytest.fixture
def manager():
    return PluginManager.discover(env={})


def is_given_by(distribution: str, *, kind: str, name: str, manager: PluginManager) -> bool:
    if distribution in NOT_INSTALLED:
        plugin = next(ROOT.glob(f"plugins/{distribution}/src/*/plugin.py"))
        return f'"{name}"' in plugin.read_text("utf-8")
    if distribution in HERE:
        return manager.find(kind, name).origin.distribution == distribution
    return distribution in TABLES["planned"]


def test_a_component_is_given_by_the_distribution_that_is_named(manager):
    components = [(*key.split("/"), by) for key, by in TABLES["components"].items()]

    assert [
        (kind, name, by)
        for kind, name, by in components
        if not is_given_by(by, kind=kind, name=name, manager=manager)
    ] == []


def test_a_distribution_is_in_this_repository_or_is_not_advised():
    told = {name: known.how_to_get(name) for name in known.known_distributions()}

    assert {name for name in told if "pip install" in told[name]} == set(told) & HERE
    assert {name for name in told if "not there yet" in told[name]} == set(told) - HERE


def test_a_clone_is_told_the_folders_of_a_distribution_and_of_what_it_needs():
    told = known.how_to_get("trinity-studio")

    folders = ("packages/trinity-studio", "plugins/trinity-debug", "plugins/trinity-ledger")
    assert told.endswith(f" (in a clone: {' '.join(f'-e {one}' for one in folders)})")


def test_what_was_installed_from_a_wheel_is_told_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(known, "_ROOT", tmp_path)

    assert known.how_to_get("trinity-lab") == "Run: python -m pip install trinity-lab"


def test_what_is_planned_is_not_there():
    assert set(TABLES["planned"]) & HERE == set()


def test_a_name_that_something_stands_for_is_of_a_kind_and_says_what(manager):
    for key, instead in TABLES["instead"].items():
        kind, is_name, name = key.partition("/")
        if not is_name:
            with pytest.raises(ImportError, match="is a module of Trinity-RFT; here "):
                importlib.import_module(key)
            continue
        assert kind in KINDS
        if name not in manager.names(kind):
            with pytest.raises(UnknownComponentError, match=f"here {instead[:20]}"):
                manager.find(kind, name)


def test_a_name_of_trinity_rft_alone_is_answered_with_what_stands_for_it(site, golden):
    with pytest.raises(UnknownComponentError) as raised:
        site.discover().find("experience_operator", "data_juicer")

    golden(str(raised.value), "plugin_name_of_trinity_rft")


def test_a_plugin_that_does_not_exist_yet_is_not_to_be_installed(site, golden, monkeypatch):
    until = "leave engine_type out, and the engine follows the machine"
    monkeypatch.setitem(known._tables(), "planned", {"trinity-engine-vllm": until})
    set_manager(site.discover())
    with pytest.raises(UnknownComponentError) as raised:
        site.discover().find("rollout_engine", "vllm")

    golden(str(raised.value), "plugin_planned")
