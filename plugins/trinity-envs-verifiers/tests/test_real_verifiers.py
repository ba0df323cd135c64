"""Tasksets of the real verifiers, in the environment of its own: nox -s verifiers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from trinity.errors import EnvError
from trinity.extend.environments import missing_environment
from trinity_envs_verifiers import child_process, rows
from trinity_envs_verifiers.environment import ENVIRONMENT
from trinity_testing.engines import ScriptedEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing_environment(ENVIRONMENT)),
        reason="trinity plugins setup verifiers --environment",
    ),
]
HERE = Path(__file__).parent
LETTERS, FAULTY = str(HERE / "letters.py"), str(HERE / "faulty.py")
STUCK = str(HERE / "stuck.py")


@pytest.mark.parametrize("harness", [None, "null"])
def test_a_task_is_run_and_scored_by_verifiers(workflow_of, monkeypatch, harness):
    monkeypatch.setenv("UV_OFFLINE", os.environ.get("UV_OFFLINE", "1"))
    engine = ScriptedEngine("eat!")
    (experience,) = workflow_of(engine, 2, taskset=LETTERS, harness=harness).run()

    assert experience.reward == 0.75
    assert experience.metrics["common_letters"] == 0.75
    assert experience.metrics["num_turns"] == 1.0
    ids = [*engine.exchanges[0].request.prompt_token_ids]
    ids += engine.exchanges[0].completions[0].token_ids
    assert experience.tokens.tolist() == ids
    assert "say 2" in experience.prompt_text


def test_a_task_that_raises_is_an_environments_error_that_names_it(workflow_of):
    with pytest.raises(EnvError) as raised:
        workflow_of(ScriptedEngine("eat"), 1, taskset=FAULTY).run()
    said = str(raised.value)
    assert said.startswith(f"verifiers, task 1 of {FAULTY!r}: TaskError: ")
    assert "KeyError: 'answer'" in said
    (experience,) = workflow_of(ScriptedEngine("eat"), 0, taskset=FAULTY).run()
    assert experience.reward == 0.5


def test_a_task_that_is_not_there_says_how_many_there_are(workflow_of):
    with pytest.raises(EnvError, match="there is no task 7: the taskset has 3"):
        workflow_of(ScriptedEngine("eat"), 7, taskset=FAULTY).run()


def test_a_taskset_that_cannot_be_loaded_is_named(workflow_of):
    with pytest.raises(EnvError) as raised:
        workflow_of(ScriptedEngine("eat"), taskset="no_such_taskset").run()
    assert "verifiers cannot load the taskset 'no_such_taskset'" in str(raised.value)
    assert "ModuleNotFoundError" in str(raised.value)


def test_a_process_that_was_killed_is_replaced(workflow_of):
    workflow_of(ScriptedEngine("eat"), taskset=LETTERS).run()
    (child,) = child_process._children.values()
    os.kill(child._process.process.pid, signal.SIGKILL)
    child._process.process.wait(10)

    (experience,) = workflow_of(ScriptedEngine("eat"), taskset=LETTERS).run()
    assert experience.reward == 1.0


def test_a_task_that_blocks_its_process_loses_it_when_its_time_is_up(workflow_of, monkeypatch):
    monkeypatch.setattr(child_process, "_HEARS_WITHIN_S", 1.0)
    engine = ScriptedEngine("eat")
    workflow = workflow_of(engine, 0, taskset=STUCK)
    engine.before_answer = lambda request: threading.Timer(3.0, workflow.close).start()
    with pytest.raises(EnvError, match="was killed by SIGKILL"):
        workflow.run()

    (experience,) = workflow_of(ScriptedEngine("eat"), 2, taskset=STUCK).run()
    assert experience.reward == 0.5


def test_a_metric_that_is_no_number_fails_its_run_at_once(workflow_of):
    with pytest.raises(EnvError, match=r"task 1 of .*TypeError: Object of type object"):
        workflow_of(ScriptedEngine("eat"), 1, taskset=STUCK).run()


def test_rows_name_the_tasks(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert rows.main([LETTERS, str(file), "--limit", "2"]) == 0
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"idx": 0, "name": "n0", "prompt": "say 0"},
        {"idx": 1, "name": "n1", "prompt": "say 1"},
    ]


def test_a_taskset_of_twelve_lines_trains_twenty_steps_with_rising_reward(tmp_path, tiny_model):
    done, lines = _trained(tmp_path, tiny_model, taskset=LETTERS, num_rows=8, total_steps=20)

    assert done.returncode == 0, done.stdout
    rewards = [row["rollout/reward/mean"] for row in lines if "rollout/reward/mean" in row]
    assert len(rewards) == 20
    first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
    assert last > 1.5 * first, rewards
    assert sum(row.get("rollout/failed_runs", 0) for row in lines) == 0


def test_runs_of_a_task_that_raises_are_dropped_and_have_no_reward(tmp_path, tiny_model):
    done, lines = _trained(tmp_path, tiny_model, taskset=FAULTY, num_rows=3, total_steps=1)

    assert done.returncode == 0, done.stdout
    explored = [row for row in lines if "rollout/failed_runs" in row]
    assert [row["rollout/failed_runs"] for row in explored] == [2]
    assert [row["rollout/reward/mean"] for row in explored] == [0.5]
    assert f"verifiers, task 1 of {FAULTY!r}: TaskError" in done.stdout


def _trained(folder, model, *, taskset, num_rows, total_steps):
    lines = [json.dumps({"idx": n}) + "\n" for n in range(num_rows)]
    (folder / "rows.jsonl").write_text("".join(lines))
    config = {
        "project": "verifiers",
        "name": "tiny",
        "algorithm": {
            "algorithm_type": "multi_step_grpo",
            "repeat_times": 6 if total_steps > 1 else 2,
            "kl_loss_fn": "none",
            "optimizer": {"lr": 2e-3},
        },
        "model": {"model_path": str(model), "max_model_len": 64, "max_response_tokens": 8},
        "buffer": {
            "batch_size": 2 if total_steps > 1 else 3,
            "total_steps": total_steps,
            "explorer_input": {
                "taskset": {
                    "name": "rows",
                    "path": "rows.jsonl",
                    "default_workflow_type": "verifiers_workflow",
                    "workflow_args": {"taskset": taskset},
                }
            },
        },
        "explorer": {"max_timeout": 300, "max_retry_times": 0},
        "monitor": {"monitor_type": "jsonl"},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [sys.executable, "-m", "trinity", "run", "--local", "--config", "run.yaml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    metrics = folder / "checkpoints" / "verifiers" / "tiny" / "monitor" / "metrics.jsonl"
    return done, [json.loads(line) for line in metrics.read_text().splitlines()]
