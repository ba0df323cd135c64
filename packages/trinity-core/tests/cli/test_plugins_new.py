"""A scaffolded plugin builds, installs, passes its own conformance tests, and can be run."""

from __future__ import annotations

import re
import zipfile
from contextlib import chdir

import pytest
import trinity
from hatchling.build import build_wheel
from rich.console import Console
from trinity.cli.plugins import app
from trinity.errors import ConfigError, ConflictError
from trinity.extend import KINDS, PluginManager, set_manager
from trinity.runtime.record.result import RunStatus
from trinity_testing.new_command import SHAPES
from trinity_testing.planning import run_checks
from trinity_testing.tiny import make_tiny_model
from typer.testing import CliRunner


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory):
    """Return the folder of one small model for all runs."""
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def new(*arguments: str):
    return CliRunner().invoke(app, ["new", *arguments])


#: whose conformance checks train with them
LEARNING = {"workflow", "reward_fn", "advantage_fn", "policy_loss_fn", "sample_strategy"}
LEARNING |= {"algorithm"}
FIRST = {"workflow", "policy_loss_fn"}  # one that has an engine, one that trains


def wheel_of(project, target):
    """Build the project's wheel and unpack it, as pip would, into ``target``."""
    with chdir(project):
        wheel = build_wheel(str(target))
    zipfile.ZipFile(target / wheel).extractall(target)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in FIRST else pytest.param(kind, marks=pytest.mark.acceptance)
        for kind in SHAPES
    ],
)
def test_a_new_plugin_builds_passes_its_conformance_tests_and_takes_part_in_a_run(
    site, tmp_path, monkeypatch, tiny_model_path, kind
):
    result = new("mine", "--kind", kind, "--directory", str(tmp_path))
    assert result.exit_code == 0, result.output
    project = tmp_path / "trinity-mine"
    wheel_of(project, site.path)
    manager = PluginManager.discover(env={})
    set_manager(manager)
    assert "mine" in manager.names(kind)
    assert [result for result in run_checks("mine", manager) if result.is_bad] == []
    if kind in LEARNING - {"workflow"}:
        return

    named = re.findall(r"\smine(?=\n|:)", (project / "run.yaml").read_text())
    monkeypatch.chdir(project)
    monkeypatch.setenv("TRINITY_MODEL_PATH", str(tiny_model_path))

    done = trinity.run("run.yaml", local=True, console=Console(quiet=True))

    assert done.stages[0].status is RunStatus.FINISHED
    assert done.stages[0].train_steps == 2
    assert len(named) == 2  # the project's name, and the part


def test_every_kind_of_component_can_be_begun():
    no_first_plugin = {"endpoint", "run_mode", "sandbox"}  # they open, or shut, a whole runtime
    assert set(SHAPES) == set(KINDS) - no_first_plugin


def test_the_test_file_of_a_new_plugin_has_three_lines(site, tmp_path):
    new("mine", "--kind", "reward_fn", "--directory", str(tmp_path))
    text = (tmp_path / "trinity-mine" / "tests" / "test_plugin.py").read_text()
    assert len([line for line in text.splitlines() if line]) == 2
    assert 'conformance.suite("mine")' in text


def test_a_folder_that_exists_is_left_alone(site, tmp_path):
    (tmp_path / "trinity-mine").mkdir()
    result = new("mine", "--kind", "workflow", "--directory", str(tmp_path))
    assert isinstance(result.exception, ConfigError)


def test_a_name_that_is_taken_is_refused_with_its_owner(dull, tmp_path):
    set_manager(dull.discover())
    result = new("dull", "--kind", "workflow", "--directory", str(tmp_path))
    assert isinstance(result.exception, ConflictError)
    assert "already exists in trinity-dull 1.0" in str(result.exception)


@pytest.mark.parametrize("arguments", [["mine", "--kind", "train"], ["9x", "--kind", "workflow"]])
def test_a_kind_or_name_that_cannot_be_is_a_usage_error(site, tmp_path, arguments):
    assert new(*arguments, "--directory", str(tmp_path)).exit_code == 2


def test_a_name_of_an_installed_plugin_or_of_trinity_itself_is_refused(dull, tmp_path):
    set_manager(dull.discover())
    where = ("--directory", str(tmp_path))
    taken = new("dull", "--kind", "reward_fn", *where)
    assert (
        str(taken.exception) == "plugin dull (trinity-dull 1.0) is installed. Choose another name."
    )
    ours = new("testing", "--kind", "workflow", *where)
    assert str(ours.exception) == "trinity-testing is a package of Trinity. Choose another name."
    assert list(tmp_path.glob("trinity-*")) == []


def test_a_directory_that_cannot_be_written_is_said(dull, tmp_path):
    set_manager(dull.discover())
    (tmp_path / "file").write_text("")
    result = new("maze", "--kind", "workflow", "--directory", str(tmp_path / "file"))
    assert isinstance(result.exception, ConfigError)
    assert "cannot be written: Not a directory. Choose another --directory." in str(
        result.exception
    )


def test_the_run_of_a_new_workflow_names_no_reward_that_it_would_ignore(tmp_path):
    new("mine", "--kind", "workflow", "--directory", str(tmp_path))

    run = (tmp_path / "trinity-mine" / "run.yaml").read_text()

    assert "default_reward_fn_type" not in run
    assert "workflow_args" in run
