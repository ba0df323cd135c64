"""``trinity plugins setup`` and ``check`` of a plugin that needs data."""

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
WHOLE_METADATA = (
    "Metadata-Version: 2.4\nName: trinity-needy\nVersion: 1.0\nSummary: plays games\n"
    "Requires-Python: >=3.11\nLicense-Expression: MIT\nRequires-Dist: trinity-core>=0.1,<0.2\n"
)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


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


def test_check_of_all_plugins_skips_what_nobody_has_fetched_and_says_how_in_one_line(
    needy_workflow,
):
    result = run("check")
    assert result.exit_code == 0, result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "games" in line]
    assert line == (
        "skipped in needy: play.wins, assets.games of workflow/needy: games is missing: "
        "no game in ~/games. Run: trinity plugins setup needy"
    )
    assert run("check", "needy").exit_code == 1  # who names it asks whether it can be used


def test_an_asset_whose_check_fails_is_bad_in_a_check_of_all_plugins(site):
    site.plugin("needy", ASSETS.format(fetch=None))
    site.module("games_asset", "def missing():\n    return 1 / 0\n")
    set_manager(site.discover())
    result = run("check")
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.stdout


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
    return _with_workflow(site)


def _with_workflow(site, *, needed_by=()):
    hooks = """
    @hookimpl
    def trinity_workflows():
        return {"needy": "games_asset:Play"}

    @hookimpl
    def trinity_conformance_checks():
        return {"play": "games_checks:checks"}
"""
    assets = ASSETS.replace("{fetch!r}", f"'games_asset:fetch', needed_by={needed_by!r}")
    site.plugin("needy", assets + hooks, extra={"METADATA": WHOLE_METADATA})
    play = """
    from trinity.common.workflows.workflow import Workflow

    class Play(Workflow):
        '''Plays.'''

        def run(self):
            return []
"""
    site.module("games_asset", GAMES + play)
    site.module(
        "games_checks",
        """
        from trinity_testing.check import Check

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

    assert played() == (
        "SKIP",
        "games is missing: no game in ~/games. Run: trinity plugins setup needy",
    )
    run("setup", "needy")
    assert played() == ("PASS", "")


@pytest.mark.parametrize(
    ("needed_by", "status"), [("workflow/needy", "SKIP"), ("workflow/another", "PASS")]
)
def test_only_the_parts_that_need_an_asset_wait_for_it(site, needed_by, status):
    from trinity.extend import get_manager
    from trinity_testing.planning import run_checks

    _with_workflow(site, needed_by=(needed_by,))
    (result,) = run_checks("needy", get_manager(), ids=["play"])
    assert result.status == status


def test_a_part_is_checked_without_its_asset_on_data_that_a_test_gives(needy_workflow):
    from trinity.extend import get_manager
    from trinity_testing.planning import run_checks

    given = {"workflow/needy": {"workflow_args": {"games": "mine"}}}
    (result,) = run_checks("needy", get_manager(), ids=["play"], args=given)
    assert result.status == "PASS"
