"""``trinity plugins setup NAME --environment``, and who says that one is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pytest
from trinity.cli.plugins import app
from trinity.errors import PluginError
from trinity.extend import set_manager
from typer.testing import CliRunner

PLUGIN = """
    from trinity.extend import EnvironmentSpec, hookimpl

    TRINITY_PLUGIN_API = 1

    @hookimpl
    def trinity_assets():
        return [
            EnvironmentSpec(
                name={name!r}, what="the package dice", size="1 KB", packages=({package!r},)
            )
        ]
"""
WHOLE_METADATA = (
    "Metadata-Version: 2.4\nName: trinity-dicey\nVersion: 1.0\nSummary: rolls dice\n"
    "Requires-Python: >=3.11\nLicense-Expression: MIT\nRequires-Dist: trinity-core>=0.1,<0.2\n"
)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def environments(tmp_path, monkeypatch):
    folder = tmp_path / "environments"
    monkeypatch.setenv("TRINITY_ENVIRONMENTS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # what follows needs no index
    return folder


@pytest.fixture
def dicey(site, tmp_path, environments):
    """A plugin that needs a wheel which lies beside it."""
    wheel = _wheel(tmp_path)
    source = PLUGIN.format(name="dicey", package=f"dice @ file://{wheel}")
    site.plugin("dicey", source, extra={"METADATA": WHOLE_METADATA})
    set_manager(site.discover())
    return site


@pytest.mark.acceptance
def test_an_environment_is_made_once_and_holds_the_packages(
    dicey, tmp_path, environments, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))  # where no uv is
    assert "assets.environment" in run("check", "dicey").stdout

    result = run("setup", "dicey", "--environment")

    assert result.exit_code == 0, result.output
    said = result.stdout.splitlines()
    folder = environments / "dicey"
    assert said[0] == (f"dicey: the package dice (1 KB) goes to {folder}. This will be run:")
    assert said[1].startswith(f"  {sys.executable} -I -m venv --clear")
    assert said[2].startswith(f"  {folder}/bin/python -I -m pip")
    assert said[3] == f"dicey: ok, its environment is in {folder}"
    inside = [f"{folder}/bin/python", "-c", "import dice; print(dice.roll())"]
    assert subprocess.run(inside, capture_output=True, text=True, check=True).stdout == "4\n"

    again = run("setup", "dicey", "--environment")
    assert again.stdout == f"dicey: its environment is in {folder}\n"
    assert run("setup", "dicey").stdout == "environment dicey: ok\n"
    results = json.loads(run("check", "dicey", "--json").stdout)["results"]
    assert [r["status"] for r in results if r["id"] == "assets.environment"] == ["PASS"]


def test_setup_without_the_switch_says_that_it_is_missing(dicey, environments, golden):
    result = run("setup", "dicey")
    assert result.exit_code == 1
    golden(result.stdout, "plugins_setup_environment_missing", ENVIRONMENTS=environments)


def test_check_names_the_missing_environment_and_the_command(dicey):
    result = run("check", "dicey")
    assert result.exit_code == 1
    assert "Run: trinity plugins setup dicey --environment" in result.stdout


def test_check_of_all_skips_an_environment_that_is_not_there_and_finds_a_spoilt_one(
    dicey, environments
):
    result = run("check")
    assert result.exit_code == 0, result.stdout
    assert (
        f"skipped in dicey: assets.environment: its environment is missing: there is none in "
        f"{environments / 'dicey'}. Run: trinity plugins setup dicey --environment"
    ) in result.stdout
    (environments / "dicey").mkdir(parents=True)  # half made
    assert run("check").exit_code == 1


def test_what_uses_a_part_is_not_checked_until_the_environment_is_there(site, environments):
    hooks = """
    @hookimpl
    def trinity_workflows():
        return {"dicey": "dicey_parts:Play"}

    @hookimpl
    def trinity_conformance_checks():
        return {"play": "dicey_checks:checks"}
"""
    site.plugin("dicey", PLUGIN.format(name="dicey", package="dice") + hooks)
    site.module("dicey_parts", "class Play:\n    '''Plays.'''\n")
    site.module(
        "dicey_checks",
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
    results = json.loads(run("check", "dicey", "--json").stdout)["results"]
    (message,) = [r["message"] for r in results if r["id"] == "play.wins"]
    assert message == (
        f"its environment is missing: there is none in {environments / 'dicey'}. "
        "Run: trinity plugins setup dicey --environment"
    )


def test_one_that_holds_trinity_is_no_need_and_names_the_program_to_start(
    site, tmp_path, environments, monkeypatch
):
    source = PLUGIN.format(name="dicey", package="dice")
    source = source.replace("packages=", "as_here=('trinity-core',), left_out=('cup',), packages=")
    site.plugin("dicey", source)
    set_manager(site.discover())
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 0\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    folder = environments / "dicey"

    missing = run("setup", "dicey")
    assert missing.exit_code == 0
    assert missing.stdout.startswith("environment dicey: missing: there is none")
    assert "assets.environment" not in run("check", "dicey").stdout
    folder.mkdir(parents=True)  # as uv would make it
    said = run("setup", "dicey", "--environment").stdout.splitlines()
    assert said[1] == f"  # {folder}.left-out.txt leaves out cup"
    assert (environments / "dicey.left-out.txt").read_text() == 'cup ; sys_platform == "never"\n'
    assert said[-1] == f"dicey: Trinity is in it, too; start there with {folder}/bin/trinity"


def test_a_command_that_fails_says_where_packages_come_from_and_what_to_run(
    site, tmp_path, environments, monkeypatch, golden
):
    site.plugin("dicey", PLUGIN.format(name="dicey", package="no-such-dice"))
    set_manager(site.discover())
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text('#!/bin/sh\n[ "$1" = venv ] && exit 0\nexit 2\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")

    result = run("setup", "dicey", "--environment")

    assert isinstance(result.exception, PluginError)
    golden(str(result.exception), "plugins_environment_failed", TMP=tmp_path)
    assert "there is none" in run("setup", "dicey").stdout


def test_a_plugin_without_an_environment_says_so(dull, environments):
    set_manager(dull.discover())
    result = run("setup", "dull", "--environment")
    assert isinstance(result.exception, PluginError)
    assert "has no environment of its own" in str(result.exception)


def test_the_python_goes_with_the_environment_alone(dicey):
    result = run("setup", "dicey", "--python", sys.executable)
    assert result.exit_code == 2
    assert "--python goes with --environment" in result.output


def test_an_environment_of_another_name_is_refused(site, environments):
    site.plugin("dicey", PLUGIN.format(name="cards", package="dice"))
    set_manager(site.discover())
    result = run("setup", "dicey", "--environment")
    assert "declares the environments 'cards'. Declare one, named 'dicey'" in str(result.exception)


def _wheel(folder):
    """Write a wheel with one module, as small as one can be."""
    path = folder / "dice-1.0-py3-none-any.whl"
    about = "dice-1.0.dist-info"
    files = {
        "dice.py": "def roll():\n    return 4\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: dice\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    names = [*files, f"{about}/RECORD"]
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in names)
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path
