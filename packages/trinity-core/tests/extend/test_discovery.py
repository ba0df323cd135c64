"""Plugins are found by metadata, admitted by version, and imported one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint, PathDistribution

import pytest
from trinity.errors import PluginError
from trinity.extend import discovery
from trinity.extend.discovery import found_plugins
from trinity.extend.ownership import refuse_any_other_owner
from trinity.extend.requirements import missing_requirements


def states(manager):
    return {record.name: record.state for record in manager.records}


def test_discovery_imports_no_plugin(dull, capsys):
    dull.plugin("loud", "raise RuntimeError('imported')")
    manager = dull.discover()
    assert [record.name for record in manager.unloaded_records()] == ["dull", "loud"]
    assert "trinity_loud_loud" not in sys.modules
    assert capsys.readouterr().err == ""


def test_plugins_are_sorted_by_distribution_then_name(site, dull_source):
    site.plugin("zebra", dull_source, distribution="trinity-a")
    site.plugin("ant", dull_source, distribution="trinity-b")
    assert [record.name for record in site.discover().unloaded_records()] == ["zebra", "ant"]


def test_150_distributions_are_listed_and_none_is_imported(site, dull_source):
    for number in range(150):
        site.plugin(f"p{number:03}", dull_source)
    assert len(site.discover().unloaded_records()) == 150
    assert [name for name in sys.modules if name.startswith(("trinity_p0", "trinity_p1"))] == []


def test_a_good_plugin_is_ok_and_its_component_is_found(dull):
    manager = dull.discover()
    assert states(manager) == {"dull": "ok"}
    assert manager.names("workflow") == ["dull"]
    assert manager.load("workflow", "dull").__doc__ == "Does nothing."
    assert str(manager.find("workflow", "dull").origin) == "trinity-dull 1.0"


def test_a_plugin_that_does_not_import_hurts_only_itself(dull, capsys, golden):
    dull.plugin("bar", "x = 1\nimport textworld_that_is_not_there\n")
    manager = dull.discover()
    assert states(manager) == {"bar": "broken", "dull": "ok"}
    assert manager.names("workflow") == ["dull"]
    golden(capsys.readouterr().err, "plugin_import_failure", SITE=dull.path)


def test_the_line_about_a_broken_plugin_is_printed_once(dull, capsys):
    dull.plugin("bar", "1 / 0")
    manager = dull.discover()
    _ = manager.records, manager.names("workflow"), manager.narrowed(disabled=["dull"]).records
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


def test_a_plugin_that_exits_is_broken_and_the_process_goes_on(site, capsys):
    site.plugin("quitter", "raise SystemExit(5)")
    (record,) = site.discover().records
    assert record.state == "broken"
    assert record.message.startswith("SystemExit: 5 at ")
    assert "SystemExit: 5" in capsys.readouterr().err


def test_an_entry_point_that_names_more_than_a_module_is_broken_with_what_to_write(dull, capsys):
    module = dull.plugin("bar", "class Hooks: ...", attribute=":Hooks")
    manager = dull.discover()
    assert states(manager) == {"bar": "broken", "dull": "ok"}
    said = capsys.readouterr().err
    assert (
        f"names 'Hooks', and hooks are called on a module. Remedy: write bar = '{module}'" in said
    )


def test_strict_plugins_make_a_broken_one_fatal_every_time(site):
    site.plugin("bar", "1 / 0")
    manager = site.discover(env={"TRINITY_STRICT_PLUGINS": "1"})
    for _ in range(2):
        with pytest.raises(PluginError, match="ZeroDivisionError"):
            manager.names("workflow")


def test_a_plugin_for_a_later_api_is_incompatible(site, capsys, golden):
    site.plugin("foo", "TRINITY_PLUGIN_API = 3", distribution="foo-trinity", version="2.0")
    (record,) = site.discover().records
    assert (record.state, record.api) == ("incompatible", "3")
    golden(capsys.readouterr().err, "plugin_too_new_api")


@pytest.mark.parametrize(
    ("declared", "state", "shown"),
    [("1", "ok", "1"), ("(1, 3)", "ok", "1-3"), ("(2, 3)", "incompatible", "2-3")],
)
def test_an_api_may_be_a_range(site, declared, state, shown):
    site.plugin("ranged", f"TRINITY_PLUGIN_API = {declared}")
    (record,) = site.discover().records
    assert (record.state, record.api) == (state, shown)


def test_an_api_that_is_no_number_is_broken(site):
    site.plugin("odd", "TRINITY_PLUGIN_API = 'one'")
    (record,) = site.discover().records
    assert record.state == "broken"
    assert "neither a number nor (oldest, newest)" in record.message


def test_a_requirement_on_another_core_is_seen_before_the_import(site, capsys):
    site.plugin("late", "1 / 0", requires="trinity_core>=99")
    (record,) = site.discover().unloaded_records()
    assert record.state == "incompatible"
    assert record.message == "needs trinity-core>=99, this is trinity-core 0.1.0"
    assert record.remedy == "python -m pip install --upgrade trinity-core trinity-late"


def test_a_requirement_of_an_extra_does_not_count(site):
    site.plugin("some", "", requires='trinity-core>=99; extra == "later"')
    assert states(site.discover()) == {"some": "ok"}


def test_a_requirement_on_a_longer_name_is_not_one_on_the_core(site):
    site.plugin("some", "", requires="trinity-core-extras>=99")
    assert states(site.discover()) == {"some": "ok"}


@pytest.mark.parametrize("switch", ["bar", "trinity-bar", "Trinity_Bar"])
def test_a_plugin_is_disabled_by_its_name_or_its_distribution(dull, switch):
    dull.plugin("bar", "1 / 0")
    manager = dull.discover(disabled=[switch])
    assert states(manager) == {"bar": "disabled", "dull": "ok"}


def test_without_autoload_only_the_allowed_are_imported(dull):
    dull.plugin("bar", "1 / 0")
    manager = dull.discover(autoload=False, allow=["trinity-dull"])
    assert states(manager) == {"bar": "disabled", "dull": "ok"}


def test_without_autoload_the_cores_own_parts_are_there():
    from trinity.extend import PluginManager

    manager = PluginManager.discover(env={}, autoload=False)
    assert {r.distribution for r in manager.records if r.state == "ok"} == {"trinity-core"}
    assert "math_workflow" in manager.names("workflow")


def test_narrowed_adds_a_runs_switches_to_those_of_the_command_line(dull):
    dull.plugin("bar", "1 / 0")
    first = dull.discover(disabled=["bar"])
    second = first.narrowed(disabled=["dull"])
    assert states(second) == {"bar": "disabled", "dull": "disabled"}
    assert first.narrowed() is first


def test_required_distributions_that_are_missing_are_listed_with_the_pip_line(dull):
    wanted = ["trinity-dull>=0.5", "trinity-dull>=2", "trinity-envs-alfworld>=0.1"]
    assert missing_requirements(wanted, records=dull.discover().records) == [
        "plugins.require: trinity-dull>=2: 1.0 is installed. "
        'Run: python -m pip install "trinity-dull>=2"',
        "plugins.require: trinity-envs-alfworld>=0.1: it is not installed or not in use. "
        'Run: python -m pip install "trinity-envs-alfworld>=0.1"',
    ]


@pytest.mark.parametrize(
    ("direct_url", "source", "commit"),
    [
        ('{"url": "file:///src/x", "dir_info": {"editable": true}}', "editable", None),
        ('{"url": "https://h/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}}', "git", "abc"),
        ('{"url": "file:///x.whl", "archive_info": {}}', "wheel", None),
    ],
)
def test_the_source_of_a_plugin_is_known(site, direct_url, source, commit):
    site.plugin("some", "", extra={"direct_url.json": direct_url})
    (described,) = site.discover().describe()
    assert (described["source"], described["commit"]) == (source, commit)
    assert described["distribution"] == "trinity-some"


def test_another_owner_of_the_import_package_is_named(site, golden, monkeypatch):
    site.plugin(
        "other",
        "",
        distribution="trinity-rft",
        extra={"RECORD": "trinity/__init__.py,sha256=x,1\n"},
    )
    with pytest.raises(PluginError) as raised:
        refuse_any_other_owner()
    golden(str(raised.value), "plugin_foreign_owner")


def test_importing_extend_imports_nothing_heavy():
    code = (
        "import sys, trinity.extend as e; m = e.PluginManager.discover(); m.records;"
        "heavy = {'torch', 'ray', 'transformers', 'datasets', 'numpy', 'vllm', 'pydantic'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_two_threads_that_ask_first_see_all_plugins(dull):
    from concurrent.futures import ThreadPoolExecutor

    dull.plugin("slow", "import time; time.sleep(0.2)")
    dull.plugin("last", "")
    manager = dull.discover()
    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(lambda _: states(manager), range(2)))
    assert seen == [{"dull": "ok", "last": "ok", "slow": "ok"}] * 2


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_worktree", [False, True])
def test_an_editable_install_in_a_clone_has_its_commit(tmp_path, is_packed, is_worktree):
    def git(*words: str, folder=tmp_path / "clone") -> str:
        own = ("-c", "user.name=n", "-c", "user.email=e")
        done = subprocess.run(
            ["git", *own, *words], cwd=folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    (tmp_path / "clone" / "a plugin").mkdir(parents=True)
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "first")
    folder = tmp_path / "clone" / "a plugin"
    if is_worktree:
        git("worktree", "add", "-q", "-b", "feature/x", str(tmp_path / "linked"))
        folder = tmp_path / "linked"
    if is_packed:
        git("pack-refs", "--all")
    site = tmp_path / "site" / "trinity_dull-1.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Name: trinity-dull\nVersion: 1\n")
    origin = {"url": folder.as_uri(), "dir_info": {"editable": True}}
    (site / "direct_url.json").write_text(json.dumps(origin))
    point = EntryPoint("dull", "dull", "trinity.plugins")._for(PathDistribution(site))

    (found,) = found_plugins([point])

    assert found.record.source == "editable"
    assert found.record.commit == git("rev-parse", "HEAD")


def test_an_editable_install_outside_of_a_clone_has_no_commit(tmp_path):
    assert discovery._commit_of(tmp_path) is None
