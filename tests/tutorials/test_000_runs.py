"""000: the keys of the multi-step guide, seen in what a run does."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest
from trinity.common.config import probe
from trinity.common.workflows import WORKFLOWS, Workflow
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import RunFailedError
from trinity.extend import Registry
from trinity_testing.builders import a_task

pytestmark = pytest.mark.slow


class LookAround(Workflow):
    """Notes what it can see, and answers once."""

    seen: list[dict[str, object]] = []  # noqa: RUF012 - of all instances

    def run(self):
        self.seen.append(
            {
                "variable": os.environ.get("TUTORIAL_SCRATCH"),
                "keeps_history": self.model.enable_history,
                "args": self.task.workflow_args,
                "temperature": self.task.rollout_args.temperature,
            }
        )
        (answer,) = self.model.chat([{"role": "user", "content": str(self.task.raw_task)}])
        answer.reward = float(len(answer.response_text) % 2)
        return [answer]


class CountingEngine(TransformersEngine):
    """Notes with what it is built."""

    built: list[dict[str, object]] = []  # noqa: RUF012 - of all instances

    def __init__(self, **options):
        self.built.append(options)
        super().__init__(**options)


@pytest.fixture
def look_around(taskset, a_process):
    WORKFLOWS.register_module("tutorial_look_around")(LookAround)
    LookAround.seen.clear()
    taskset["default_workflow_type"] = "tutorial_look_around"
    return LookAround.seen


def test_P017_a_task_has_repeat_times_runs_and_the_optimizer_the_learning_rate(
    config_dict, run_it, rolled_out, logged
) -> None:
    config_dict["algorithm"] |= {"repeat_times": 16, "optimizer": {"lr": "5e-6"}}
    config_dict["buffer"]["total_steps"] = 1

    result = run_it()

    runs = [(row["eid"]["task"], row["eid"]["run"]) for row in rolled_out(result)]
    assert len(set(runs)) == len(runs) == 4 * 16
    assert [row["actor/lr"] for row in logged(result, "trainer")] == [5e-6]


def test_P018_a_response_stops_at_max_response_tokens(config_dict, run_it, rolled_out) -> None:
    config_dict["model"]["max_response_tokens"] = 5

    lengths = [len(row["tokens"]) - row["prompt_length"] for row in rolled_out(run_it())]

    assert max(lengths) == 5  # an untrained model rarely ends by itself


def test_P018_prompt_and_response_never_pass_max_model_len(
    config_dict, run_it, rolled_out, rows
) -> None:
    long = [json.dumps({"question": "1 + 1 = " * 40, "answer": "2"}) for _ in range(4)]
    rows.write_text("\n".join(long) + "\n")
    config_dict["model"] |= {"max_model_len": 48, "max_response_tokens": 8}

    result = run_it()

    assert max(len(row["tokens"]) for row in rolled_out(result)) <= 48


def test_P020_tasks_read_are_rows_times_epochs_and_batch_size_a_step(
    config_dict, run_it, rolled_out
) -> None:
    config_dict["buffer"] |= {"total_epochs": 3, "batch_size": 8}
    config_dict["mode"] = "explore"

    tasks = {(row["eid"]["batch"], row["eid"]["task"]) for row in rolled_out(run_it())}

    assert len(tasks) == 3 * 8  # 8 rows
    assert {batch for batch, _ in tasks} == {1, 2, 3}


def test_P021_arguments_of_the_taskset_reach_the_workflow(
    taskset, config_dict, look_around, run_it
) -> None:
    taskset["workflow_args"] = {"max_env_steps": 30}
    taskset["rollout_args"] = {"temperature": 0.5}
    config_dict["mode"] = "explore"

    run_it()

    assert all(seen["args"] == {"max_env_steps": 30} for seen in look_around)
    assert all(seen["temperature"] == 0.5 for seen in look_around)


def test_P023_at_most_runner_per_model_workflows_run_at_once(explored) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    class Crowd(Workflow):
        def run(self):
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.02)
            with lock:
                now[0] -= 1
            (answer,) = self.model.chat([{"role": "user", "content": "?"}])
            answer.reward = 1.0
            return [answer]

    explored(a_task(workflow=Crowd, repeat_times=12), runner_per_model=3)

    assert most == [3]


def test_P023_a_call_makes_at_most_max_repeat_times_per_runner_runs(explored) -> None:
    task = a_task(workflow="math_workflow", repeat_times=4)

    step = explored(task, max_repeat_times_per_runner=1)

    assert [exchange.request.n for exchange in step.engine.exchanges] == [1, 1, 1, 1]


def test_P023_max_timeout_is_the_time_of_one_attempt(explored) -> None:
    class Hangs(Workflow):
        def run(self):
            time.sleep(2)

    with pytest.raises(RunFailedError, match=r"did not end in 0\.2 s"):
        explored(a_task(workflow=Hangs), max_timeout=0.2)


def test_P024_the_engine_is_built_as_the_rollout_model_says(config_dict, run_it, capsys) -> None:
    engines = Registry("rollout_engines", kind="rollout_engine")
    engines.register_module("tutorial_counting_engine")(CountingEngine)
    CountingEngine.built.clear()
    config_dict["explorer"]["rollout_model"] = {
        "engine_type": "tutorial_counting_engine",
        "engine_num": 2,
        "dtype": "bfloat16",
        "seed": 7,
    }

    run_it()

    dtype = "bfloat16" if probe().has_bf16 else "float32"  # not every processor computes it
    assert [(made["dtype"], made["seed"]) for made in CountingEngine.built] == [(dtype, 7)] * 2
    # who asks for GPUs, and has none, gets one engine, whatever engine_num asks for
    CountingEngine.built.clear()
    config_dict |= {"name": "asks_for_gpus", "cluster": {"gpu_per_node": 8}}
    run_it()

    assert len(CountingEngine.built) == 1
    said = capsys.readouterr().out
    assert "requested GPUs (cluster.gpu_per_node, explorer.rollout_model.engine_num), found" in said


def test_P024_the_history_is_kept_where_the_yaml_says_so(config_dict, look_around, run_it) -> None:
    config_dict["explorer"]["rollout_model"] = {"enable_history": True}
    config_dict["mode"] = "explore"

    run_it()

    assert {seen["keeps_history"] for seen in look_around} == {True}


def test_P024_what_only_another_engine_reads_is_listed(config_dict, write_yaml, trinity) -> None:
    config_dict["explorer"]["rollout_model"] = {
        "enable_prefix_caching": False,
        "enforce_eager": False,
        "gpu_memory_utilization": 0.7,
    }

    checked = trinity("config", "check", write_yaml(config_dict))

    assert checked.code == 0
    told = [line for line in checked.stdout.splitlines() if "not used in this run" in line]
    assert len(told) == 1
    for key in ("enable_prefix_caching", "gpu_memory_utilization"):  # the others are defaults
        assert f"explorer.rollout_model.{key}" in told[0]


def test_P025_weights_move_each_sync_interval_steps(config_dict, run_it, rolled_out) -> None:
    config_dict["synchronizer"] = {"sync_method": "nccl", "sync_interval": 2}
    config_dict["buffer"]["batch_size"] = 2

    rows = rolled_out(run_it())

    versions = {step: set() for step in (1, 2, 3, 4)}
    for row in rows:
        versions[row["eid"]["batch"]].add(row["info"]["model_version"])
    assert versions == {1: {0}, 2: {0}, 3: {2}, 4: {2}}


def test_P026_checkpoints_are_written_each_save_interval_steps(config_dict, run_it) -> None:
    config_dict["trainer"] = {"save_interval": 2}
    config_dict["buffer"]["batch_size"] = 2  # four steps

    result = run_it()

    saved = {path.name for path in result.directory.glob("global_step_*")}
    assert saved == {"global_step_2", "global_step_4"}


def test_P026_a_smaller_token_budget_makes_more_micro_batches_and_no_other_step(
    config_dict, run_it, logged
) -> None:
    steps = []
    for name, budget in (("one", 16384), ("many", 96)):
        config_dict["name"] = name
        config_dict["trainer"] = {"use_dynamic_bsz": True, "max_token_len_per_gpu": budget}
        steps.append(logged(run_it(), "trainer")[0])

    one, many = steps
    assert many["perf/num_micro_batches"] > one["perf/num_micro_batches"]
    assert many["actor/grad_norm"] == pytest.approx(one["actor/grad_norm"], rel=1e-4)


def test_P119_relative_paths_count_from_the_working_directory(
    config_dict, taskset, rows, write_yaml, trinity, tmp_path
) -> None:
    elsewhere = tmp_path / "conf"
    elsewhere.mkdir()
    (tmp_path / "data").mkdir()
    rows.rename(tmp_path / "data" / "rows.jsonl")
    taskset["path"] = "./data/rows.jsonl"
    del config_dict["checkpoint_root_dir"]

    path = write_yaml(config_dict, "conf/run.yaml")
    ended = trinity("run", "--local", "--config", path)

    assert ended.code == 0, ended.stderr
    assert (tmp_path / "checkpoints" / "e2e" / "tiny" / "run.json").exists()


def test_P121_env_vars_are_in_the_environment_of_the_workflow(
    config_dict, look_around, run_it
) -> None:
    config_dict["explorer"]["env_vars"] = {"TUTORIAL_SCRATCH": "/var/scratch"}
    config_dict["mode"] = "explore"

    run_it()

    assert {seen["variable"] for seen in look_around} == {"/var/scratch"}
    assert "TUTORIAL_SCRATCH" not in os.environ
