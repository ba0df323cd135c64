"""Published configurations of AgentScope's agents run a step on a tiny model."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("agentscope", reason="pip install 'trinity-agents-agentscope[agentscope]'")

import trinity
from trinity.common.config import load_config
from trinity.runtime.record.result import RunStatus
from trinity_testing.tiny import make_tiny_model

DATA = Path(__file__).parent / "data"
SERVER = Path(__file__).with_name("search_server.py")
INPUT, JUDGE = "buffer.explorer_input", "explorer.auxiliary_models.0"
QUESTION = {"question": "40 + 6", "problem": "40 + 6", "prompt": "40 + 6", "answer": "46"}
ROW = {**QUESTION, "gt_answer": "46", "solution": "46", "size": 3, "p": 0.9, "seed": 1}
CASES = {  # file -> further settings, a metric of its workflow, whether it trains
    "agentscope_react__gsm8k": (
        ["taskset.workflow_args={max_iters: 2}"],
        "react_memory_length",
        True,
    ),
    "agentscope_tool_react__agentscopev0_tool_react_gsm8k": (
        ["taskset.workflow_args={max_iters: 2}"],
        "accuracy",
        True,
    ),
    "agentscope_tool_react__agentscopev0_tool_react_dapo": (
        ["taskset.workflow_args={max_iters: 2}"],
        "accuracy",
        True,
    ),
    "agentscope_websearch__agentscopev1_websearch_agent": (
        [
            "taskset.workflow_args.max_turns=2",
            "taskset.rollout_args.max_tokens=8",
            f"taskset.workflow_args.search_command=[{sys.executable}, {SERVER}]",
        ],
        "react_turns",
        True,
    ),
    "agentscope_frozenlake__frozenlake_agent": (
        ["taskset.workflow_args.agent_max_steps=2"],
        "env_steps",
        False,  # its std_threshold leaves nothing of equal rewards
    ),
}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", max_positions=16384)


@pytest.mark.parametrize("name", CASES)
def test_a_published_configuration_runs_a_step(name, tiny_model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("TRINITY_MODEL_PATH", "TRINITY_AUX_MODEL_PATH"):
        monkeypatch.setenv(variable, str(tiny_model))
    Path("rows.jsonl").write_text("".join(json.dumps(ROW) + "\n" for _ in range(4)))
    monkeypatch.setenv("TRINITY_TASKSET_PATH", "rows.jsonl")
    further, metric, trains = CASES[name]
    settings = [
        f"model.model_path={tiny_model}",
        f"{INPUT}.taskset.path=rows.jsonl",
        f"{INPUT}.eval_tasksets=[]",
        "model.max_model_len=16384",
        "model.max_prompt_tokens=16000",
        "model.max_response_tokens=8",
        "algorithm.repeat_times=2",
        "buffer.batch_size=1",
        "buffer.train_batch_size=2",
        "buffer.total_steps=1",
        "synchronizer.sync_interval=1",
        "trainer.max_token_len_per_gpu=65536",
        "trainer.save_interval=0",
        "monitor.monitor_type=jsonl",
        *(f"{INPUT}.{setting}" for setting in further),
    ]
    file = DATA / f"examples__{name}.yaml"
    if "auxiliary_models:" in file.read_text():
        settings += [f"{JUDGE}.max_model_len=16384", f"{JUDGE}.max_response_tokens=8"]

    result = trinity.run(load_config(file, overrides=settings), local=True)

    assert result.status is RunStatus.FINISHED
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    metrics = {key: value for line in lines for key, value in json.loads(line).items()}
    assert math.isfinite(metrics["rollout/reward/mean"])
    assert any(f"/{metric}/" in key for key in metrics)
    assert ("actor/loss" in metrics) is trains
