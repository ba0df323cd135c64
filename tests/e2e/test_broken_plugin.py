"""A distribution whose plugin does not import is installed, and the command line lives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "broken_distribution"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the broken distribution, put there by pip."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    shutil.copytree(SOURCE, source, dirs_exist_ok=True)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return site


@pytest.fixture
def trinity(site):
    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trinity.cli.main", *arguments],
            env={**os.environ, "PYTHONPATH": str(site), **env},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_help_lives_and_one_line_names_the_plugin(trinity):
    done = trinity("--help")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    for part in ("trinity-broken 0.1", "entry point trinity_broken", "__init__.py:1", "Remedy:"):
        assert part in line


def test_list_shows_it_as_broken_and_the_others_as_ok(trinity):
    done = trinity("plugins", "list")
    assert done.returncode == 0
    state = {line.split()[0]: line.split()[4] for line in done.stdout.splitlines()}
    assert state["broken"] == "broken"
    assert state["builtin"] == "ok"


def test_check_finds_it(trinity):
    done = trinity("plugins", "check", "broken")
    assert done.returncode == 1
    assert "No module named 'no_such_module'" in done.stdout


def test_strict_plugins_stop_there(trinity):
    done = trinity("plugins", "list", TRINITY_STRICT_PLUGINS="1")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: plugin broken (trinity-broken 0.1)")


def test_left_out_it_is_silent(trinity):
    done = trinity("-P", "no:broken", "plugins", "list")
    assert (done.returncode, done.stderr) == (0, "")
