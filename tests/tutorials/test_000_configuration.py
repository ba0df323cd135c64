"""000: the configuration keys that the multi-step guide prints, read by today's runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from trinity.common.config import load_config, probe, resolve
from trinity.errors import ConfigError
from trinity.extend import Registry
from trinity_testing.builders import a_group

YAML = """
project: "ALFWORLD"
name: "Step_Wise"
checkpoint_root_dir: ${oc.env:TRINITY_CHECKPOINT_ROOT_DIR,./checkpoints}
algorithm:
  algorithm_type: grpo
  repeat_times: 16
  optimizer:
    lr: 5e-6
model:
  model_path: ${oc.env:TRINITY_MODEL_PATH,Qwen/Qwen2.5-7B-Instruct}
  max_response_tokens: 16384
  max_model_len: 20480
buffer:
  total_epochs: 20
  batch_size: 16
  explorer_input:
    taskset:
      name: alfworld
      storage_type: file
      path: 'data'
      format:
        prompt_key: 'game_file'
      rollout_args:
        temperature: 1.0
        logprobs: 0
      workflow_args:
        max_env_steps: 30
      enable_progress_bar: false
      default_workflow_type: 'math_workflow'
explorer:
  max_repeat_times_per_runner: 1
  runner_per_model: 32
  max_timeout: 3600
  rollout_model:
    enable_history: true
    seed: 42
  env_vars:
    TMPDIR: ${oc.env:TMPDIR,/var/tmp}
synchronizer:
  sync_interval: 2
  sync_timeout: 3600
trainer:
  save_interval: 50
  grad_clip: 1.0
  use_dynamic_bsz: true
  max_token_len_per_gpu: 16384
"""


@pytest.fixture
def yaml_file(tmp_path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(YAML)
    return path


def test_P010_a_registry_imports_its_default_mapping_only_when_it_is_asked() -> None:
    registry = Registry("workflows", default_mapping={"counter": "collections.Counter"})

    from collections import Counter

    assert registry.get("counter") is Counter


def test_P010_an_entry_that_the_user_adds_is_found_beside_the_mapping() -> None:
    registry = Registry("workflows", default_mapping={"counter": "collections.Counter"})

    @registry.register_module("mine")
    class Mine:
        pass

    assert registry.get("mine") is Mine


def test_P015_the_run_directory_is_root_project_name(yaml_file) -> None:
    from trinity.runtime.record.rundir import RunDir

    assert RunDir.of(load_config(yaml_file, env={})).path == Path("checkpoints/ALFWORLD/Step_Wise")


def test_P016_an_environment_variable_wins_over_its_default(yaml_file) -> None:
    set_, unset = (
        load_config(yaml_file, env=env).model.model_path
        for env in ({"TRINITY_MODEL_PATH": "m"}, {})
    )

    assert (set_, unset) == ("m", "Qwen/Qwen2.5-7B-Instruct")


def test_P016_config_show_prints_the_value_of_the_variable(yaml_file, trinity) -> None:
    shown = trinity("config", "show", yaml_file, TRINITY_MODEL_PATH="m")

    assert "model.model_path = 'm'" in shown.stdout


def test_P019_gpus_that_are_missing_are_named_in_one_line(yaml_file, trinity) -> None:
    checked = trinity("config", "check", yaml_file, "--set", "cluster.gpu_per_node=8")

    told = [line for line in checked.stdout.splitlines() if "GPU" in line]
    assert len(told) == 1
    assert "cluster.gpu_per_node" in told[0]


def test_P017_repeat_times_and_learning_rate_are_the_yamls(yaml_file) -> None:
    config = load_config(yaml_file, env={})

    assert (config.algorithm.repeat_times, config.algorithm.optimizer.lr) == (16, 5e-6)


def test_P020_the_batch_keys_are_read_and_the_train_batch_follows(yaml_file) -> None:
    config = resolve(load_config(yaml_file, env={}), probe())

    assert (config.buffer.total_epochs, config.buffer.batch_size) == (20, 16)
    assert config.buffer.train_batch_size == 256


def test_P020_config_check_prints_the_batch_arithmetic(yaml_file, trinity) -> None:
    checked = trinity("config", "check", yaml_file)

    assert "16 tasks x 16 runs x up to 30 steps = up to 7680 experiences a step" in checked.stdout


def test_P021_config_show_lists_each_key_of_the_taskset(yaml_file, trinity) -> None:
    shown = trinity("config", "show", yaml_file).stdout.splitlines()

    section = "buffer.explorer_input.tasksets.0"
    from_file = {line.partition(" = ")[0] for line in shown if "run.yaml:" in line}
    assert from_file >= {
        f"{section}.{key}"
        for key in (
            "name",
            "storage_type",
            "path",
            "format.prompt_key",
            "rollout_args.temperature",
            "rollout_args.logprobs",
            "workflow_args.max_env_steps",
            "enable_progress_bar",
            "default_workflow_type",
        )
    }


def test_P022_the_keys_of_the_experience_buffer_are_read(yaml_file) -> None:
    settings = [
        "buffer.trainer_input.experience_buffer.name=alfworld_buffer",
        "buffer.trainer_input.experience_buffer.storage_type=queue",
        "buffer.trainer_input.experience_buffer.replay_buffer.priority_fn=linear_decay",
        "buffer.trainer_input.experience_buffer.replay_buffer.priority_fn_args.decay=0.1",
    ]

    buffer = load_config(yaml_file, overrides=settings, env={}).buffer.trainer_input

    read = buffer.experience_buffer
    assert (read.name, read.storage_type) == ("alfworld_buffer", "queue")
    assert read.replay_buffer.priority_fn_args == {"decay": 0.1}


def test_P022_the_published_priority_function_has_the_published_default() -> None:
    from trinity_algorithms.replay.priority import LinearDecay

    old, new = (a_group(info={"model_version": version})[0] for version in (1, 3))
    priority = LinearDecay(decay=0.1)

    assert priority([new])[0] > priority([old])[0]


def test_P021_each_key_of_the_taskset_is_read(yaml_file) -> None:
    taskset = load_config(yaml_file, env={}).buffer.explorer_input.taskset

    assert (taskset.name, taskset.storage_type, taskset.path) == ("alfworld", "file", "data")
    assert taskset.format.prompt_key == "game_file"
    assert (taskset.rollout_args.temperature, taskset.rollout_args.logprobs) == (1.0, 0)
    assert taskset.workflow_args == {"max_env_steps": 30}
    assert taskset.default_workflow_type == "math_workflow"


def test_P023_and_P121_explorer_keys_and_variables_are_read(yaml_file) -> None:
    explorer = load_config(yaml_file, env={"TMPDIR": "/elsewhere"}).explorer

    assert (explorer.max_repeat_times_per_runner, explorer.runner_per_model) == (1, 32)
    assert explorer.max_timeout == 3600
    assert explorer.env_vars == {"TMPDIR": "/elsewhere"}


def test_P025_and_P026_synchronizer_and_trainer_keys_are_read(yaml_file) -> None:
    config = load_config(yaml_file, env={})

    assert (config.synchronizer.sync_interval, config.synchronizer.sync_timeout) == (2, 3600)
    assert (config.trainer.save_interval, config.trainer.grad_clip) == (50, 1.0)
    assert config.trainer.max_token_len_per_gpu == 16384


def test_P117_a_number_without_a_dot_is_a_number(yaml_file) -> None:
    lr = load_config(yaml_file, env={}).algorithm.optimizer.lr

    assert isinstance(lr, float)
    assert lr == 0.000005


def test_P056_the_snippets_variable_names_the_dataset(
    trinity, write_yaml, config_dict, taskset, rows
) -> None:
    config_dict["buffer"]["explorer_input"]["task_set"] = taskset
    del config_dict["buffer"]["explorer_input"]["taskset"]
    taskset["path"] = "${oc.env:TRINITY_TASKSET_PATH}"
    del taskset["default_workflow_type"]
    taskset["default_workflow"] = "math_workflow"
    path = write_yaml(config_dict)

    is_set = trinity("config", "check", path, TRINITY_TASKSET_PATH=str(rows))
    is_not_set = trinity("config", "check", path)

    assert is_set.code == 0, is_set.stdout
    assert is_not_set.code == 1
    assert "TRINITY_TASKSET_PATH is not set" in is_not_set.stdout + is_not_set.stderr


def test_P056_a_variable_that_is_not_set_is_one_clear_error(tmp_path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "buffer:\n  explorer_input:\n    taskset:\n      path: ${oc.env:TRINITY_TASKSET_PATH}\n"
    )

    with pytest.raises(ConfigError, match="TRINITY_TASKSET_PATH"):
        load_config(path, env={})


def test_P053_and_P056_older_key_names_are_read_with_a_warning(tmp_path, caplog) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "buffer:\n  explorer_input:\n    task_set:\n      path: rows.jsonl\n"
        "      default_workflow: math_workflow\n"
    )

    config = load_config(path, env={})

    taskset = config.buffer.explorer_input.taskset
    assert (taskset.path, taskset.default_workflow_type) == ("rows.jsonl", "math_workflow")
    said = [record.getMessage() for record in caplog.records]
    assert any("buffer.explorer_input.task_set" in line and "taskset" in line for line in said)
