"""What a workflow that can be asked early says against its arguments."""

from __future__ import annotations

from textwrap import dedent

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.problem import listed
from trinity.extend import PluginManager, set_manager

PLUGIN = """
    from dataclasses import dataclass
    from trinity.common.workflows import Workflow
    from trinity.errors import ConfigError
    from trinity.extend import ComponentSpec, hookimpl


    class Picky(Workflow):
        def run(self):
            return []

        @classmethod
        def check_arguments(cls, arguments):
            if "dice" not in arguments:
                raise ConfigError("workflow_args.dice is missing. Say how many.")


    @dataclass
    class Listed:
        num_tries: int = 1


    class Tries(Workflow):
        args_model = Listed

        def run(self):
            return []


    @hookimpl
    def trinity_workflows():
        return {
            "asked_early": ComponentSpec(f"{__name__}:Picky", provides={"preflight"}),
            "asked_late": f"{__name__}:Picky",
            "listed": f"{__name__}:Tries",
        }
"""


@pytest.fixture
def problems(tmp_path, cpu, a_run):
    """Return a function that gives what is wrong with a run of these settings."""
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "picky.py").write_text(dedent(PLUGIN))
    before = set_manager(PluginManager.discover(env={}, plugin_dirs=[str(folder)]))

    def found(workflow: str, **arguments: int) -> str:
        taskset = "buffer.explorer_input.taskset"
        overrides = [f"{taskset}.default_workflow_type={workflow}"]
        overrides += [f"{taskset}.workflow_args.{k}={v}" for k, v in arguments.items()]
        config = resolve(load_config(a_run(), overrides=overrides), cpu)
        return "\n".join(listed(check(config, cpu)))

    yield found
    set_manager(before)


def test_its_refusal_is_a_problem_of_the_configuration(problems):
    said = problems("asked_early")
    assert "taskset" in said
    assert "workflow_args" in said
    assert "workflow_args.dice is missing. Say how many." in said


def test_arguments_that_it_takes_are_none(problems):
    assert "dice" not in problems("asked_early", dice=2)


def test_another_is_asked_when_its_run_starts(problems):
    assert "dice" not in problems("asked_late")


def test_an_argument_that_the_workflow_does_not_list_is_refused(problems):
    said = problems("listed", num_tires=2)

    assert "workflow listed has no argument 'num_tires'. Did you mean 'num_tries'?" in said
    assert "taskset.workflow_args.num_tires" in said
    assert problems("listed", num_tries=2) == ""


def test_the_arguments_of_a_workflow_that_lists_none_are_its_own_affair(problems):
    assert problems("asked_late", num_tires=2) == ""
