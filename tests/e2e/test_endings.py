"""However a run ends, its exit code and its last line say how; none of it is lost or elsewhere."""

from __future__ import annotations

import json
import os

import pytest

ENDS = """
import os
import sys

from trinity.algorithm import ADVANTAGE_FN, AdvantageFn
from trinity.common.workflows import WORKFLOWS, Workflow


@WORKFLOWS.register_module("ends")
class EndingWorkflow(Workflow):
    def run(self):
        {end}


@ADVANTAGE_FN.register_module("ends")
class EndingAdvantage(AdvantageFn):
    def __call__(self, exps, **kwargs):
        {end}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
@pytest.mark.parametrize("part", ["workflow", "advantage"])
def test_a_part_that_ends_the_process_as_if_all_were_well_fails_the_run(
    part, end, config_dict, taskset, write_yaml, plugin_dir, trinity_program, status_of
) -> None:
    if part == "workflow":
        taskset["default_workflow_type"] = "ends"
        config_dict["explorer"]["max_retry_times"] = 0
    else:
        config_dict["algorithm"]["advantage_fn"] = "ends"
    folder = plugin_dir(ENDS.replace("{end}", end), "ends.py")

    ended = trinity_program(
        "run", "--local", "--config", write_yaml(config_dict), "--plugin-dir", folder
    )

    assert ended.returncode == 1
    assert "ends.py:" in ended.stderr
    assert status_of()["status"] == "failed"


def test_a_plugin_whose_import_ends_the_process_fails_its_check(
    plugin_dir, trinity_program
) -> None:
    folder = plugin_dir("import os\n\nos._exit(0)\n", "ends.py")

    ended = trinity_program("--plugin-dir", folder, "plugins", "check")

    assert ended.returncode == 1
    assert "broken: SystemExit: os._exit(0)" in ended.stderr
    assert "ends.py:3. Remedy: " in ended.stderr


CHANGES = """
import os

from trinity.common.workflows import WORKFLOWS, SimpleWorkflow


@WORKFLOWS.register_module("changes")
class Changes(SimpleWorkflow):
    def run(self):
        os.chdir(os.environ["ELSEWHERE"])
        return super().run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", [["--local"], pytest.param([], marks=pytest.mark.ray)])
def test_a_workflow_that_changes_the_working_directory_moves_no_file_of_the_run(
    where, config_dict, taskset, write_yaml, plugin_dir, trinity_program, run_dir, tmp_path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for section, key in ((config_dict, "checkpoint_root_dir"), (taskset, "path")):
        section[key] = os.path.relpath(section[key], tmp_path)
    taskset["default_workflow_type"] = "changes"
    config_dict["data_processor"] = {"experience_pipeline": {"input_save_path": "said.jsonl"}}
    arguments = ("run", *where, "--config", write_yaml(config_dict))
    folder = plugin_dir(CHANGES)

    for epochs in (1, 2):
        ended = trinity_program(
            *(*arguments, "--plugin-dir", folder, "--set", f"buffer.total_epochs={epochs}"),
            env={"ELSEWHERE": str(elsewhere)},
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    assert "going on after" in ended.stdout
    assert "model: checkpoints/e2e/tiny/global_step_4/" in ended.stdout
    assert list(elsewhere.iterdir()) == []
    state = json.loads((run_dir / "global_step_4" / "state.json").read_text())
    assert state["files"]["said.jsonl"]["size"] == (tmp_path / "said.jsonl").stat().st_size
