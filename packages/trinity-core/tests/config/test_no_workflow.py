"""A class that was registered as a workflow and is none is told before anything starts."""

from __future__ import annotations

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.problem import listed
from trinity.extend import PluginManager, set_manager

PARTS = """
from trinity.common.workflows import WORKFLOWS


@WORKFLOWS.register_module("no_base")
class NoBase:
    def run(self):
        return []
"""


@pytest.fixture
def plugin_dir(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "no_base.py").write_text(PARTS)
    before = set_manager(PluginManager.discover(env={}, plugin_dirs=[str(folder)]))
    yield folder
    set_manager(before)


def test_a_registered_class_without_the_base_of_workflows_is_a_problem(
    plugin_dir, cpu, a_run, golden
) -> None:
    taskset = "buffer.explorer_input.taskset"
    overrides = [f"{taskset}.default_workflow_type=no_base"]
    config = resolve(load_config(a_run(), overrides=overrides), cpu)

    golden("\n".join(listed(check(config, cpu))), "config_no_workflow", TMP=plugin_dir.parent)
