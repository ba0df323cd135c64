"""What no other process can find by name travels by value, or the run does not start."""

from __future__ import annotations

import threading

import pytest
from trinity.common.config import Config
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.secrets import remember
from trinity.common.workflows import WORKFLOWS
from trinity.errors import ConfigError
from trinity.extend import get_manager
from trinity.extend.held import HELD
from trinity.runtime.ray.cluster import Cluster, startup_line
from trinity.runtime.ray.worker import WorkerFacts
from trinity.runtime.ray.worker_spec import (
    PackedFolder,
    WorkerSpec,
    packed_run,
    unpacked_run,
    value_line,
)
from trinity.runtime.record.rundir import RunDir


def a_config(**workflow_args):
    taskset = {"path": "x", "workflow_args": workflow_args}
    return Config(buffer={"explorer_input": {"taskset": taskset}})


def test_configuration_and_classes_in_hand_come_back():
    @WORKFLOWS.register_module("mine")
    class Mine:
        value = 3

    data = packed_run(a_config(double=lambda number: 2 * number))
    HELD.restore({})
    config = unpacked_run(data)
    assert config.buffer.explorer_input.taskset.workflow_args["double"](4) == 8
    assert WORKFLOWS.get("mine").value == 3


def test_classes_that_travel_by_value_are_named():
    assert value_line() == ""

    mine = type("Mine", (), {"__module__": "__main__"})
    WORKFLOWS.register_module("mine", mine)
    assert value_line() == (
        "sent to the workers by value, as your script defines them: workflow mine (__main__:Mine)"
    )


def test_what_cannot_travel_is_named_with_its_place(golden):
    with pytest.raises(ConfigError) as raised:
        packed_run(a_config(lock=threading.Lock(), number=3))
    golden(str(raised.value), "ray_unsendable")


def test_a_folder_is_packed_without_byte_code_and_known_by_its_files(tmp_path):
    folder = tmp_path / "plugins"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "__pycache__" / "mine.pyc").write_bytes(b"code")
    (folder / "mine.py").write_text("VALUE = 1\n")
    packed = PackedFolder.of(folder)
    assert packed.is_here
    packed.unpack(tmp_path / "there")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["mine.py"]
    (folder / "mine.py").write_text("VALUE = 2\n")
    assert not packed.is_here


def test_the_time_before_the_first_task_is_listed():
    found = Cluster(address="a:1", namespace="n", is_own=True, seconds=4.14)
    worker = WorkerFacts(
        name="trainer", node="n", host="h", pid=1, digest="d", plugins=(),
        seconds={"plugins": 0.5, "build": 2.5},
    )  # fmt: skip
    line = startup_line(found, [worker], seconds=5.7)
    assert line == "started in 9.8 s: ray 4.1, trainer 3.0"


def test_a_worker_of_a_cluster_that_others_started_has_the_key_that_the_configuration_names(
    tmp_path, monkeypatch
):
    for name in ("JUDGE_URL", "JUDGE_LOGIN", "RUBRIC_LOGIN", "OF_NOBODY"):
        monkeypatch.setenv(name, f"the {name}")
    api = {"enable": True, "base_url_env": "JUDGE_URL", "api_key_env": "JUDGE_LOGIN"}
    judge = {"name": "judge", "model_path": "judge", "external_model_config": api}
    config = a_config(judge_api_key_env="RUBRIC_LOGIN", not_set_env="NOT_SET")
    config.explorer = ExplorerConfig(auxiliary_models=[judge])
    spec = WorkerSpec.of(
        config, rundir=RunDir(tmp_path), manager=get_manager(), namespace="trinity-test"
    )
    others = {"JUDGE_URL", "JUDGE_LOGIN", "RUBRIC_LOGIN"}
    assert {n for n in spec.environment if n in {*others, "OF_NOBODY", "NOT_SET"}} == others
    assert spec.runtime_env({}) is None


def test_a_secret_reaches_a_worker_by_no_environment_that_ray_logs(tmp_path):
    remember(["sk-of-the-judge"])
    config = Config(explorer={"env_vars": {"JUDGE": "sk-of-the-judge", "LD_PRELOAD": "lib.so"}})
    spec = WorkerSpec.of(
        config, rundir=RunDir(tmp_path), manager=get_manager(), namespace="trinity-test"
    )
    assert spec.runtime_env({}) == {"env_vars": {"LD_PRELOAD": "lib.so"}}
    assert spec.env_vars["JUDGE"] == "sk-of-the-judge"
    assert "sk-of-the-judge" in spec.secrets
