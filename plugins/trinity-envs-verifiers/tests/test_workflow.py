"""Runs whose child answers as the real one was recorded to; the endpoint in between is real."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
from trinity.errors import BadTaskError, ConfigError, EnvError, ModelError, PluginError
from trinity_debug.engines import Repeating
from trinity_debug.recorded import Exchange
from trinity_envs_verifiers import child_process, rows
from trinity_envs_verifiers.workflow import VerifiersWorkflow
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

HERE = Path(__file__).parent
LETTERS, FAULTY = str(HERE / "letters.py"), str(HERE / "faulty.py")


@pytest.fixture
def recorded(monkeypatch):
    """Let a script of recorded answers stand for the child."""
    monkeypatch.setattr(child_process, "_SCRIPT", HERE / "replay_child.py")
    monkeypatch.setattr(child_process, "environment_python", lambda spec: Path(sys.executable))


def test_a_run_has_the_reward_the_metrics_and_the_ids_that_were_sampled(workflow_of, recorded):
    engine = ScriptedEngine("eat!")
    (experience,) = workflow_of(engine, 2, taskset=LETTERS).run()

    assert experience.reward == 0.75
    assert experience.metrics["common_letters"] == 0.75
    assert experience.metrics["num_turns"] == 1.0
    ids = [*engine.exchanges[0].request.prompt_token_ids]
    ids += engine.exchanges[0].completions[0].token_ids
    assert experience.tokens.tolist() == ids


def test_runs_of_a_taskset_share_a_process(workflow_of, recorded):
    for _ in range(2):
        workflow_of(ScriptedEngine("eat!"), 0, taskset=LETTERS).run()
    assert len(child_process._children) == 1
    workflow_of(ScriptedEngine("eat!"), 0, taskset=FAULTY).run()
    assert len(child_process._children) == 2


def test_a_task_that_raises_is_an_environments_error_that_names_it(workflow_of, recorded, golden):
    with pytest.raises(EnvError) as raised:
        workflow_of(ScriptedEngine("eat!"), 1, taskset=FAULTY).run()
    golden(str(raised.value), "env_verifiers_task_raised", HERE=HERE)


def test_a_task_that_is_not_there_says_how_many_there_are(workflow_of, recorded, golden):
    with pytest.raises(EnvError) as raised:
        workflow_of(ScriptedEngine("eat!"), 7, taskset=FAULTY).run()
    golden(str(raised.value), "env_verifiers_no_task", HERE=HERE)


def test_a_taskset_that_cannot_be_loaded_is_named_and_tried_once(workflow_of, recorded, golden):
    children = set()
    for _ in range(2):
        with pytest.raises(EnvError) as raised:
            workflow_of(ScriptedEngine("eat!"), taskset="no_such_taskset").run()
        children |= set(child_process._children.values())
    assert len(children) == 1
    golden(str(raised.value), "env_verifiers_no_taskset")


def test_an_engine_that_fails_is_no_fault_of_the_taskset(workflow_of, recorded):
    engine = ScriptedEngine("eat!", repeat=True)

    def fail(request):
        raise ModelError("out of memory")

    engine.before_answer = fail
    with pytest.raises(ModelError, match="out of memory"):
        workflow_of(engine, 2, taskset=LETTERS).run()


def test_a_process_that_ends_says_its_last_words_and_is_replaced(workflow_of, recorded):
    for _ in range(2):
        with pytest.raises(EnvError) as raised:
            workflow_of(ScriptedEngine("eat!"), taskset="DIES").run()
        assert "verifiers, task 0 of 'DIES': its process ended with code 3" in str(raised.value)
        assert "a taskset's last words" in str(raised.value)


def test_closing_a_run_that_hangs_ends_it(workflow_of, recorded):
    workflow = workflow_of(ScriptedEngine("eat!"), taskset="HANGS")
    timer = threading.Timer(0.5, workflow.close)
    timer.start()
    began = time.monotonic()
    with pytest.raises(EnvError, match="CancelledError"):
        workflow.run()
    assert time.monotonic() - began < 20
    with pytest.raises(EnvError, match="its time was up before it began"):
        workflow.run()


def test_a_task_that_blocks_its_process_loses_it_when_its_time_is_up(
    workflow_of, recorded, monkeypatch
):
    monkeypatch.setattr(child_process, "_HEARS_WITHIN_S", 0.5)
    workflow = workflow_of(ScriptedEngine("eat!"), taskset="BLOCKS")
    failed = []
    run = threading.Thread(target=lambda: failed.append(_error_of(workflow)), daemon=True)
    run.start()
    limit = time.monotonic() + 60
    while workflow._asked is None:
        assert run.is_alive(), failed
        assert time.monotonic() < limit
        time.sleep(0.01)

    workflow.close()
    run.join(20)

    assert "its process was killed by SIGKILL; another takes its place" in failed[0]
    (experience,) = workflow_of(ScriptedEngine("eat!"), 2, taskset="BLOCKS").run()
    assert experience.reward == 0.75


def _error_of(workflow) -> str:
    with pytest.raises(EnvError) as raised:
        workflow.run()
    return str(raised.value)


@pytest.mark.parametrize("idx", [None, "0", -1, True])
def test_a_row_without_a_number_says_how_rows_are_written(workflow_of, idx):
    with pytest.raises(BadTaskError, match=r"python -m trinity_envs_verifiers.rows TASKSET FILE"):
        workflow_of(ScriptedEngine("eat!"), idx, taskset=LETTERS).run()


def test_rows_name_the_tasks(tmp_path, recorded, capsys):
    file = tmp_path / "data" / "rows.jsonl"
    assert rows.main(["no_such_taskset", str(file), "--config", "{}"]) == 1
    assert "verifiers cannot load the taskset" in capsys.readouterr().err
    assert rows.main([LETTERS, str(file), "--limit", "2"]) == 0
    assert capsys.readouterr().out == f"{file}: 2 rows\n"
    assert file.read_text().splitlines()[0] == '{"idx": 0, "name": "n0", "prompt": "say 0"}'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs workflow_args.taskset"),
        ({"taskset": "x", "harnes": "null"}, "Did you mean 'harness'"),
        ({"taskset": "no_such_file.py"}, "which is no file"),
        ({"taskset": "x", "config": 3}, "workflow_args.config is 3. Give pairs"),
        ({"taskset": "x", "harness": 3}, "workflow_args.harness is 3"),
        ({"taskset": "x", "agent": {"model": "m"}}, "agent.model cannot be set"),
    ],
)
def test_what_no_run_could_use_is_refused(arguments, said):
    with pytest.raises(ConfigError) as raised:
        VerifiersWorkflow.check_arguments(arguments)
    assert said in str(raised.value)


def test_a_missing_environment_is_refused_with_the_command(tmp_path, monkeypatch, golden):
    monkeypatch.setenv("TRINITY_ENVIRONMENTS", str(tmp_path))
    with pytest.raises(PluginError) as raised:
        VerifiersWorkflow.check_arguments({"taskset": "letters"})
    golden(str(raised.value), "env_verifiers_environment_missing", TMP=tmp_path)


def test_a_replay_runs_verifiers_again_on_the_recorded_replies(workflow_of, recorded):
    (first,) = workflow_of(ScriptedEngine("eat!"), 2, taskset=LETTERS).run()
    start, tokens = first.prompt_length, tuple(first.tokens.tolist())
    given = {"logprobs": tuple(first.logprobs.tolist()), "is_cut": False}
    exchange = Exchange(prompt=tokens[:start], reply=tokens[start:], **given)
    engine = Repeating([exchange], chat_format=script_chat_format())

    (again,) = workflow_of(engine, 2, taskset=LETTERS).run()

    assert again.tokens.tolist() == first.tokens.tolist()
    assert (again.reward, engine.left, engine.difference) == (first.reward, [], None)
