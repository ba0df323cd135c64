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
@pytest.mark.parametrize(
    ("part", "end"),
    [
        ("advantage", "sys.exit(0)"),
        pytest.param("workflow", "os._exit(0)", marks=pytest.mark.acceptance),
        pytest.param("workflow", "sys.exit(0)", marks=pytest.mark.acceptance),
        pytest.param("advantage", "os._exit(0)", marks=pytest.mark.acceptance),
    ],
)
def test_a_part_that_ends_the_process_as_if_all_were_well_fails_the_run(
    part, end, config_dict, taskset, write_yaml, plugin_dir, trinity_forked, status_of
) -> None:
    if part == "workflow":
        taskset["default_workflow_type"] = "ends"
        config_dict["explorer"]["max_retry_times"] = 0
    else:
        config_dict["algorithm"]["advantage_fn"] = "ends"
    folder = plugin_dir(ENDS.replace("{end}", end), "ends.py")

    ended = trinity_forked(
        "run", "--local", "--config", write_yaml(config_dict), "--plugin-dir", folder
    )

    assert ended.code == 1
    assert "ends.py:" in ended.stderr
    assert status_of()["status"] == "failed"


def test_a_plugin_whose_import_ends_the_process_fails_its_check(plugin_dir, trinity_forked) -> None:
    folder = plugin_dir("import os\n\nos._exit(0)\n", "ends.py")

    ended = trinity_forked("--plugin-dir", folder, "plugins", "check")

    assert ended.code == 1
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


@pytest.mark.acceptance
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


HANGS = """
import time

from trinity.buffer.queue import QueueStorage
from trinity.buffer.selectors import SequentialSelector
from trinity.extend import hookimpl

HERE = __name__


def wait_for_ever():
    time.sleep(10_000)


class Selector(SequentialSelector):
    def get_indices(self, count):
        if self.position:
            wait_for_ever()
        return super().get_indices(count)


class Monitor:
    def log(self, metrics, *, step):
        if step > 1:
            wait_for_ever()

    def close(self):
        pass


class Storage(QueueStorage):
    def read(self, count, **options):
        wait_for_ever()


@hookimpl
def trinity_task_selectors():
    return {"hangs": f"{HERE}:Selector"}


@hookimpl
def trinity_monitors():
    return {"hangs": f"{HERE}:Monitor"}


@hookimpl
def trinity_storages():
    return {"hangs": f"{HERE}:Storage"}
"""
BUFFER = "buffer.trainer_input.experience_buffer"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "settings"),
    [
        (
            "Selector.get_indices",
            ["buffer.explorer_input.taskset.data_selector.selector_type=hangs"],
        ),
        pytest.param("Monitor.log", ["monitor.monitor_type=hangs"], marks=pytest.mark.acceptance),
        pytest.param(
            "Storage.read",
            [f"{BUFFER}.storage_type=hangs", f"{BUFFER}.max_read_timeout=2"],
            marks=pytest.mark.acceptance,
        ),
    ],
)
def test_a_part_that_never_returns_is_named_with_its_stack_and_ends_the_run(
    call, settings, config_dict, write_yaml, plugin_dir, trinity_forked, status_of
) -> None:
    given = [*settings, "plugins.report_after_s=2", "plugins.end_after_s=4"]
    options = [word for setting in given for word in ("--set", setting)]
    folder = plugin_dir(HANGS, "hanging.py")

    ended = trinity_forked(
        *("run", "--local", "--config", write_yaml(config_dict), "--plugin-dir", folder, *options)
    )

    assert ended.code == 1
    what = f"{call} of plugin hanging (plugin-dir {folder}/hanging.py)"
    assert f"waiting for {what} since " in ended.stdout
    assert f"Error: {what} did not return in " in ended.stderr
    assert "hanging.py:12 wait_for_ever" in ended.stderr
    assert status_of()["status"] == "failed"


def test_a_plugin_whose_import_never_ends_is_named_and_fails_its_check(
    plugin_dir, trinity, monkeypatch
) -> None:
    monkeypatch.setattr("trinity.extend.loading.IMPORT_S", 2.0)
    folder = plugin_dir("import time\n\ntime.sleep(10_000)\n", "import_hangs.py")

    ended = trinity("--plugin-dir", folder, "plugins", "check")

    assert ended.code == 1
    assert "waiting for the import of plugin import_hangs since " in ended.stderr
    assert "the import of plugin import_hangs did not return in 2 s: " in ended.stderr
    assert "import_hangs.py:3 <module>" in ended.stderr


LATE = """
import threading

from trinity.common.workflows import WORKFLOWS, SimpleWorkflow


@WORKFLOWS.register_module("late")
class Late(SimpleWorkflow):
    def run(self):
        if int(self.task.task_id) == 0 and self.run_id_base == 0:
            threading.Event().wait(60)
        return super().run()
"""


@pytest.mark.slow
def test_a_run_whose_rollout_timed_out_promises_the_same_numbers_no_more(
    config_dict, taskset, write_yaml, plugin_dir, trinity, status_of
) -> None:
    taskset["default_workflow_type"] = "late"
    config_dict["explorer"] |= {"max_timeout": 2, "max_retry_times": 0, "max_failed_ratio": 1.0}
    folder = plugin_dir(LATE, "late.py")

    ended = trinity("run", "--local", "--config", write_yaml(config_dict), "--plugin-dir", folder)

    assert ended.code == 0, ended.stderr
    assert "two runs of a seed have the same numbers" in ended.stdout
    assert "a rollout of explore step 1 was dropped because its time was up: " in ended.stdout
    assert (status_of()["guarantee"], status_of()["timed_out_step"]) == ("same ledger", 1)
