"""``trinity plugins``: list, show, check and setup."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from trinity.cli.plugins import app
from trinity.extend import set_manager
from typer.testing import CliRunner

WITHOUT_KIT = """
import sys
from trinity.cli.main import main

class WithoutKit:
    def find_spec(name, *_):
        if name == "trinity_testing":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, WithoutKit)
main()
"""


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def mixed(dull):
    """Four plugins: one good, one broken, one too new, one switched off."""
    dull.plugin("bar", "import textworld_that_is_not_there", distribution="trinity-envs-bar")
    dull.plugin("foo", "TRINITY_PLUGIN_API = 3", distribution="foo-trinity", version="2.0")
    dull.plugin("off", "1 / 0")
    set_manager(dull.discover(disabled=["off"]))
    return dull


def test_list_shows_every_plugin_with_its_state(mixed, golden):
    result = run("list")
    assert result.exit_code == 0
    golden(result.stdout, "plugins_list", SITE=mixed.path)


def test_list_without_import_reads_metadata_only(mixed, golden):
    golden(run("list", "--no-import").stdout, "plugins_list_no_import")
    assert "trinity_dull_dull" not in sys.modules


def test_list_of_a_kind_names_its_parts(mixed):
    lines = run("list", "--kind", "workflow").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["PLUGIN", "dull"]
    assert lines[1].endswith("ok      dull")


def test_list_of_a_state_shows_no_other(mixed):
    lines = run("list", "--status", "broken").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["PLUGIN", "bar"]


@pytest.mark.parametrize("option", ["--kind", "--status"])
def test_a_filter_that_means_nothing_is_a_usage_error(mixed, option):
    result = run("list", option, "workflw")
    assert result.exit_code == 2


def test_list_as_json_is_an_interface(mixed):
    listed = json.loads(run("list", "--json").stdout)
    assert listed["schema"] == 1
    by_name = {plugin["name"]: plugin for plugin in listed["plugins"]}
    assert {name: plugin["state"] for name, plugin in by_name.items()} == {
        "bar": "broken",
        "dull": "ok",
        "foo": "incompatible",
        "off": "disabled",
    }
    assert by_name["bar"]["remedy"].startswith("python -m pip install --upgrade trinity-envs-bar")
    (component,) = by_name["dull"]["components"]
    assert component["kind"] == "workflow"
    assert component["name"] == "dull"
    assert component["target"] == "dull_parts:Dull"
    assert set(by_name["dull"]) >= {"distribution", "version", "api", "source", "module"}


@pytest.fixture
def documented(site):
    site.plugin(
        "loud",
        """
        from trinity.extend import ComponentSpec, hookimpl

        TRINITY_PLUGIN_API = 1

        @hookimpl
        def trinity_reward_fns():
            return {"loud": ComponentSpec("loud_parts:Loud", needs=frozenset({"history"}))}
        """,
        extra={},
    )
    site.module(
        "loud_parts",
        """
        class Loud:
            '''Rewards capital letters.

            Args:
                factor: for each.
            '''

            def __init__(self, factor: float = 0.5, *words: str) -> None:
                pass
        """,
    )
    set_manager(site.discover())
    return site


def test_show_tells_what_a_plugin_provides(documented, golden):
    result = run("show", "loud")
    assert result.exit_code == 0
    golden(result.stdout, "plugins_show")


@pytest.mark.parametrize("name", ["trinity-loud", "reward_fn/loud", "reward_fn/trinity-loud/loud"])
def test_show_takes_a_distribution_or_a_component(documented, name):
    assert "factor: float = 0.5" in run("show", name).stdout


def test_show_as_json_is_an_interface(documented):
    shown = json.loads(run("show", "loud", "--json").stdout)
    assert (shown["schema"], shown["plugin"], shown["status"]) == (1, "loud", "ok")
    (component,) = shown["components"]
    assert component["origin"] == "trinity-loud 1.0"
    assert component["arguments"][0] == {
        "name": "factor",
        "type": "float",
        "has_default": True,
        "default": 0.5,
    }


def test_show_of_a_part_that_does_not_load_tells_why(site, dull_source):
    site.plugin("dull", dull_source)
    set_manager(site.discover())
    assert "No module named 'dull_parts'" in run("show", "dull").stdout


def test_check_finds_what_is_wrong_and_leaves_with_1(mixed):
    result = run("check", "bar")
    assert result.exit_code == 1
    assert "static.entry_point" in result.stdout
    assert "textworld_that_is_not_there" in result.stdout


def test_check_without_names_looks_at_all_but_the_disabled(mixed):
    result = run("check")
    assert result.exit_code == 1
    assert "off (" not in result.stdout
    assert "dull (trinity-dull 1.0): " in result.stdout


@pytest.mark.parametrize(
    ("command_name", "words"),
    [("check", ["dull", "--ray"]), ("doctor", ["--json"]), ("new", ["mine", "--kind", "workflow"])],
)
def test_a_command_without_the_kit_is_the_line_that_installs_it(command_name, words):
    command = [sys.executable, "-c", WITHOUT_KIT, "plugins", command_name, *words]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    name = "check" if command_name == "doctor" else command_name
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"Error: trinity plugins {name} is part of trinity-testing. "
        "Run: python -m pip install trinity-testing (in a clone: -e packages/trinity-testing)",
    )


def test_check_as_json_is_an_interface(mixed):
    checked = json.loads(run("check", "bar", "--json").stdout)
    assert checked["schema"] == 1
    (found,) = [r for r in checked["results"] if r["id"] == "static.entry_point"]
    assert (found["plugin"], found["status"], found["severity"]) == ("bar", "FAIL", "error")
    assert set(found) == {
        *("plugin", "id", "component", "status", "severity", "message", "remedy", "seconds"),
    }


def test_doctor_is_another_name_of_check(mixed):
    answers = [json.loads(run(name, "bar", "--json").stdout) for name in ("doctor", "check")]
    for row in (row for answer in answers for row in answer["results"]):
        row["seconds"] = 0.0
    assert answers[0] == answers[1]


def test_show_of_an_unknown_kind_names_the_nearest(mixed):
    result = run("show", "workflows/dull")
    assert str(result.exception).startswith(
        "no kind of component named 'workflows'. Did you mean 'workflow'?"
    )


def test_a_plugin_is_found_however_its_name_is_written(dull):
    dull.plugin("my_env", "TRINITY_PLUGIN_API = 1", distribution="trinity-my-env")
    set_manager(dull.discover())

    for name in ("my_env", "my-env", "trinity_my_env", "Trinity-My-Env"):
        assert run("show", name).exit_code == 0, name
        assert run("check", name).output.count("my_env") > 0, name


def test_a_plugin_is_switched_off_however_its_name_is_written(dull):
    dull.plugin("my_env", "TRINITY_PLUGIN_API = 1", distribution="trinity-my-env")

    records = dull.discover(disabled=["My-Env"]).records

    assert [record.state for record in records if record.name == "my_env"] == ["disabled"]
