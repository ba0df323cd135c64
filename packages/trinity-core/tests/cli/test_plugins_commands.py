"""``trinity plugins``: list, show, check and setup."""

from __future__ import annotations

import json
import sys

import pytest
from trinity.cli.plugins import app
from trinity.extend import set_manager
from typer.testing import CliRunner

ASSETS = """
    from trinity.extend import AssetSpec, hookimpl

    TRINITY_PLUGIN_API = 1

    @hookimpl
    def trinity_assets():
        return [AssetSpec("games", "text games", "2 MB", "games_asset:missing", {fetch!r})]
"""
GAMES = """
    here = []

    def missing():
        return None if here else "no game in ~/games"

    def fetch():
        here.append("game")
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


def test_check_prints_the_line_that_installs_the_rest(mixed):
    assert "python -m pip install trinity-testing" in run("check", "dull").stdout


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


@pytest.fixture
def needy(site):
    site.plugin("needy", ASSETS.format(fetch="games_asset:fetch"))
    site.module("games_asset", GAMES)
    set_manager(site.discover())
    return site


def test_check_names_a_missing_asset_and_the_command_that_gets_it(needy):
    result = run("check", "needy")
    assert result.exit_code == 1
    assert "assets.games" in result.stdout
    assert "no game in ~/games. Run: trinity plugins setup needy" in result.stdout


def test_setup_fetches_and_verifies(needy):
    result = run("setup", "needy")
    assert result.exit_code == 0
    assert result.stdout == "games: fetching text games (2 MB)\ngames: ok\n"
    assert run("setup", "needy").stdout == "games: ok\n"


def test_setup_of_what_cannot_be_fetched_says_so_and_leaves_with_1(site):
    site.plugin("needy", ASSETS.format(fetch=None))
    site.module("games_asset", GAMES)
    set_manager(site.discover())
    result = run("setup", "needy")
    assert result.exit_code == 1
    assert result.stdout == ("games: missing: no game in ~/games. It cannot be fetched for you.\n")


def test_setup_of_a_plugin_without_needs_says_so(dull):
    set_manager(dull.discover())
    assert "needs nothing beside its Python packages" in run("setup", "dull").stdout


def test_a_failing_fetch_says_whose_it_is(site):
    from trinity.errors import PluginError

    site.plugin("needy", ASSETS.format(fetch="games_asset:no_such_function"))
    site.module("games_asset", GAMES)
    set_manager(site.discover())
    result = run("setup", "needy")
    assert isinstance(result.exception, PluginError)
    assert "fetching 'games' of plugin needy (trinity-needy 1.0) failed" in str(result.exception)


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


GAMES_WITH_OPTIONS = """
    from trinity.errors import DataError

    here = {}

    def missing(*, num_games="1"):
        return None if here else f"no {num_games} games"

    def fetch(*, from_=None, num_games="1"):
        '''Get the games.

        Args:
            from_: a folder or a ZIP to take them from.
            num_games: how many.
        '''
        if from_ == "nowhere":
            raise DataError("nowhere is no folder. Name one with --from.")
        here["games"] = (from_, num_games)
"""


@pytest.fixture
def choosy(site):
    site.plugin("choosy", ASSETS.format(fetch="games_asset:fetch"))
    site.module("games_asset", GAMES_WITH_OPTIONS)
    set_manager(site.discover())
    return site


@pytest.mark.parametrize(
    "given", [("--from", "here", "--num-games", "3"), ("--from=here", "--num-games=3")]
)
def test_setup_hands_the_options_to_the_functions_that_name_them(choosy, given):
    result = run("setup", "choosy", *given)
    assert result.exit_code == 0, result.output
    assert sys.modules["games_asset"].here == {"games": ("here", "3")}


def test_setup_with_an_option_fetches_though_nothing_is_missing(choosy):
    run("setup", "choosy", "--from", "here")
    assert run("setup", "choosy").stdout == "games: ok\n"
    run("setup", "choosy", "--from", "there")
    assert sys.modules["games_asset"].here == {"games": ("there", "1")}


def test_the_help_of_setup_lists_the_options_of_the_plugin(choosy, golden):
    golden(run("setup", "choosy", "--help").stdout, "plugins_setup_help")
    assert "Options of" not in run("setup", "--help").stdout
    assert "no plugin named 'nobody'" in run("setup", "nobody", "--help").stdout


def test_setup_refuses_an_option_that_no_function_names(choosy, golden):
    result = run("setup", "choosy", "--num-game", "3")
    golden(str(result.exception), "plugins_setup_unknown_option")
    assert not sys.modules["games_asset"].here


def test_setup_of_a_plugin_without_options_says_that_it_has_none(needy, golden):
    result = run("setup", "needy", "--from", "here")
    golden(str(result.exception), "plugins_setup_no_options")


@pytest.mark.parametrize(
    ("given", "said"), [(("--from",), "--from lacks its value"), (("x",), "'x' is no option")]
)
def test_setup_with_half_an_option_is_a_usage_error(choosy, given, said):
    result = run("setup", "choosy", *given)
    assert result.exit_code == 2
    assert said in result.output


def test_what_a_fetch_says_to_do_is_shown_as_it_is(choosy, golden):
    result = run("setup", "choosy", "--from", "nowhere")
    golden(str(result.exception), "plugins_setup_data_error")


@pytest.fixture
def needy_workflow(site):
    """A workflow that needs an asset, and a check that uses workflows."""
    hooks = """
    @hookimpl
    def trinity_workflows():
        return {"needy": "games_asset:Play"}

    @hookimpl
    def trinity_conformance_checks():
        return {"play": "games_checks:checks"}
"""
    site.plugin("needy", ASSETS.format(fetch="games_asset:fetch") + hooks)
    site.module("games_asset", GAMES + "\n    class Play:\n        pass\n")
    site.module(
        "games_checks",
        """
        from trinity.extend.conformance.checks import Check

        checks = [
            Check(
                id="play.wins",
                function=lambda component, context: None,
                remedy="Win.",
                kinds=frozenset({"workflow"}),
            )
        ]
        """,
    )
    set_manager(site.discover())
    return site


def test_what_uses_a_part_is_not_checked_until_its_asset_is_there(needy_workflow):
    def played():
        results = json.loads(run("check", "needy", "--json").stdout)["results"]
        return next((r["status"], r["message"]) for r in results if r["id"] == "play.wins")

    assert played() == ("SKIP", "games is missing: no game in ~/games")
    run("setup", "needy")
    assert played() == ("PASS", "")


def test_a_part_is_checked_without_its_asset_on_data_that_a_test_gives(needy_workflow):
    from trinity.extend import get_manager
    from trinity.extend.conformance.checks import run_checks

    given = {"workflow/needy": {"workflow_args": {"games": "mine"}}}
    (result,) = run_checks("needy", get_manager(), ids=["play"], args=given)
    assert result.status == "PASS"
