"""004: what AgentScope's tuner asks of Trinity, shown without AgentScope."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trinity.common.config import (
    Config,
    InferenceModelConfig,
    TasksetConfig,
    TinkerConfig,
    load_config,
)
from trinity.extend import PluginManager, set_manager

EXAMPLE = Path(__file__).parents[2] / "examples/agentscope_tuner"
ADAPTER = "agentscope_workflow_adapter_v1"


def test_P049_and_P137_the_ready_agents_workflow_is_imported_from_the_published_place() -> None:
    from trinity.common.workflows import AgentScopeReactMathWorkflow

    assert AgentScopeReactMathWorkflow.__module__ == "trinity_agents_agentscope.react_math"


def test_P049_without_its_plugin_the_import_names_the_pip_line() -> None:
    from trinity.common import workflows

    before = set_manager(PluginManager.discover(env={}, entry_points=[]))
    try:
        with pytest.raises(ImportError, match="pip install trinity-agents-agentscope"):
            workflows.AgentScopeReactMathWorkflow  # noqa: B018
    finally:
        set_manager(before)


def test_P158_every_name_that_the_tuner_imports_is_there() -> None:
    from trinity.cli.launcher import run_stage
    from trinity.common.rewards.math_reward import MathBoxedRewardFn
    from trinity.utils.dlc_utils import setup_ray_cluster, stop_ray_cluster

    named = (run_stage, setup_ray_cluster, stop_ray_cluster, MathBoxedRewardFn)
    assert all(callable(one) for one in named)


def test_P158_the_tuners_constructors_take_what_it_gives() -> None:
    model = InferenceModelConfig(
        model_path="m",
        max_model_len=512,
        tensor_parallel_size=1,
        engine_num=1,
        tool_call_parser="hermes",
        reasoning_parser=None,
        enable_openai_api=True,
        enable_auto_tool_choice=True,
    )
    tinker = TinkerConfig(
        rank=16, seed=None, train_mlp=True, train_attn=True, train_unembed=True, base_url=None
    )
    taskset = TasksetConfig(name="t", path="rows.jsonl", split="train", subset_name=None)

    assert (model.tool_call_parser, model.reasoning_parser) == ("hermes", None)
    assert (tinker.rank, taskset.split) == (16, "train")


@pytest.fixture
def tuned(config_dict, taskset, write_yaml, rows):
    """Return a configuration that was read, and written to as the tuner does."""
    del taskset["default_workflow_type"], taskset["default_reward_fn_type"]
    config = load_config(write_yaml(config_dict))
    given = config.buffer.explorer_input
    given.taskset.path, given.taskset.split = str(rows.with_name("others.jsonl")), "train"
    shutil.copy(rows, given.taskset.path)
    given.taskset.subset_name = None
    config.buffer.total_epochs, config.buffer.total_steps = 1, None
    given.taskset.default_workflow_type = given.default_workflow_type = ADAPTER
    given.taskset.workflow_args.update({"workflow_func": len})
    given.eval_tasksets.append(TasksetConfig(name="eval_taskset", path=str(rows), split="train"))
    for one in given.eval_tasksets:
        one.workflow_args.update({"workflow_func": len})
    config.model.max_model_len, config.model.max_response_tokens = 90, 8
    config.explorer.rollout_model = InferenceModelConfig(
        model_path=config.model.model_path, engine_num=1, tool_call_parser="hermes",
        enable_openai_api=True,
    )  # fmt: skip
    config.explorer.rollout_model.enable_history = True
    config.algorithm.algorithm_type, config.algorithm.repeat_times = "multi_step_grpo", 2
    config.algorithm.optimizer.lr, config.buffer.batch_size = 1e-4, 2
    config.trainer.save_interval, config.explorer.eval_interval = 1, 1
    config.cluster.ray_address = "auto"
    return config


def test_P107_and_P156_what_the_tuner_writes_wins_over_the_file(tuned, rows) -> None:
    checked = tuned.check_and_update()

    assert isinstance(checked, Config)
    values = checked.flatten()
    assert values["buffer.explorer_input.tasksets.0.path"].endswith("others.jsonl")
    assert values["buffer.explorer_input.tasksets.0.default_workflow_type"] == ADAPTER
    assert values["buffer.explorer_input.eval_tasksets.0.default_workflow_type"] == ADAPTER
    assert values["algorithm.algorithm_type"] == "multi_step_grpo"
    assert values["algorithm.repeat_times"] == 2
    assert values["algorithm.optimizer.lr"] == 1e-4
    assert values["explorer.rollout_model.tool_call_parser"] == "hermes"


def test_P107_the_files_algorithm_and_model_are_the_runs(config_dict, write_yaml, tmp_path) -> None:
    config_dict["algorithm"] = {"algorithm_type": "opmd", "repeat_times": 3}
    shutil.copytree(config_dict["model"]["model_path"], tmp_path / "another")
    config_dict["model"]["model_path"] = str(tmp_path / "another")

    checked = load_config(write_yaml(config_dict)).check_and_update()

    assert checked.algorithm.algorithm_type == "opmd"
    assert checked.explorer.rollout_model.model_path == str(tmp_path / "another")


def test_P106_a_checked_configuration_is_checked_again_with_the_same_result(tuned) -> None:
    once = tuned.check_and_update()

    assert once.check_and_update().flatten() == once.flatten()


def test_lists_and_dicts_that_are_written_to_belong_to_one_configuration() -> None:
    first, second = Config(), Config()
    first.explorer.auxiliary_models.append(InferenceModelConfig(model_path="m"))

    assert second.explorer.auxiliary_models == []


PACKS = """
import sys
from trinity.common.config import Config, TasksetConfig
from trinity.runtime.ray.worker_spec import packed_run

def made(scale):
    async def solve(task, model):
        return scale * len(task)
    return solve

config = Config()
functions = {"workflow_func": made(3)}
config.buffer.explorer_input.taskset = TasksetConfig(workflow_args=functions)
sys.stdout.buffer.write(packed_run(config))
"""
UNPACKS = """
import asyncio, sys
from trinity.runtime.ray.worker_spec import unpacked_run

taskset = unpacked_run(sys.stdin.buffer.read()).buffer.explorer_input.taskset
print(asyncio.run(taskset.workflow_args["workflow_func"]("four", None)))
"""


def test_P155_a_closure_of_a_script_runs_in_another_process(tmp_path) -> None:
    (tmp_path / "script.py").write_text(PACKS)
    sent = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, check=True, capture_output=True, timeout=120
    )

    got = subprocess.run(
        [sys.executable, "-c", UNPACKS], input=sent.stdout, check=True, capture_output=True,
        timeout=120,
    )  # fmt: skip

    assert got.stdout.split() == [b"12"]


def test_P153_the_example_is_a_script_and_a_configuration() -> None:
    tree = ast.parse((EXAMPLE / "main.py").read_text())

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (tune,) = [call for call in calls if getattr(call.func, "id", "") == "tune"]
    given = {keyword.arg for keyword in tune.keywords}
    assert given == {"workflow_func", "judge_func", "train_dataset", "config_path"}
    assert (EXAMPLE / "config.yaml").is_file()


def snapshot(repository: Path) -> Path:
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123")
    (repository / "snapshots" / "0123").mkdir(parents=True)
    return repository / "snapshots" / "0123"


@pytest.mark.acceptance
def test_P110_and_P111_the_examples_configuration_is_right_with_both_ids_in_the_cache(
    tmp_path, trinity_program
) -> None:
    from trinity_testing.tiny import make_tiny_model

    hub = tmp_path / "hub"
    make_tiny_model(snapshot(hub / "models--Qwen--Qwen3-1.7B"), max_positions=16384)
    dataset = snapshot(hub / "datasets--openai--gsm8k")
    (dataset / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n"
        "    path: main/train.jsonl\n---\n"
    )
    (dataset / "main").mkdir()
    row = {"question": "What is 2 + 2 ?", "answer": "It is four. #### 4"}
    (dataset / "main" / "train.jsonl").write_text(f"{json.dumps(row)}\n")
    env = {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(hub),
        "HF_DATASETS_CACHE": str(tmp_path / "datasets"),
    }

    ended = trinity_program("config", "check", EXAMPLE / "config.yaml", env=env)

    assert ended.returncode == 0, ended.stdout + ended.stderr
