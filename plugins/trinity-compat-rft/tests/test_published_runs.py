"""Published configurations train one step on a tiny model; paths and sizes alone are changed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import trinity
from trinity.common.config import load_config
from trinity.runtime.record.result import RunStatus
from trinity_compat_rft.emails.mailbox import write_mailbox
from trinity_testing.tiny import make_tiny_model

DATA = Path(__file__).parent / "data"
QUESTION = {"question": "40 + 6", "problem": "40 + 6", "answer": "46", "prompt": "40 + 6"}
ANSWER = {"gt_answer": "46", "solution": "46"}
BOTS = {
    "prompt": [{"role": "user", "content": "40 + 6"}],
    "reward_model": {"ground_truth": "46"},
}
TOOLS = {
    "tools": '[{"name": "add"}]',
    "raw_system": "",
    "conversations": [{"from": "human", "value": "40 + 6"}],
    "answer": '[{"name": "add", "arguments": {"a": 40, "b": 6}}]',
}
RUBRIC = QUESTION | {"reference_answer": "46", "rubric": [{"description": "is 46", "weight": 5}]}
TALK = {
    "messages": [{"role": "user", "content": "My head hurts."}],
    "action_truth": "continue",
    "decision_truth": "continue",
    "info_truth": "since when",
}
SEARCH = {
    "id": 1,
    "question": "When do we meet?",
    "answer": "At noon.",
    "message_ids": ["<1@example.org>"],
    "how_realistic": 1.0,
    "inbox_address": "ann@example.org",
    "query_date": "2001-05-01",
}
INPUT = "buffer.explorer_input"
JUDGE = "explorer.auxiliary_models.0"
# A random model seldom ends a reply: math_boxed masks it, and of equal rewards a std_threshold
# leaves nothing. Such a run ends without a train step.
CASES = {  # file -> its row, further settings, a metric of its workflow, whether it trains
    "dapo_math__dapo": (QUESTION | ANSWER, [], "accuracy", False),
    "rec_math__math": (QUESTION | ANSWER, [], "accuracy", False),
    "grpo_math__math": (QUESTION | ANSWER, [], "accuracy", True),
    "grpo_gsm8k_trainable_ruler__gsm8k_ruler": (QUESTION, [], "judge_success", False),
    "grpo_toolcall__toolace": (TOOLS, [], None, True),
    "grpo_frozen_lake__frozen_lake": (
        {"size": 3, "p": 0.9, "seed": 1},
        [f"{INPUT}.taskset.workflow_args.agent_max_steps=2"],
        "env_steps",
        True,
    ),
    "bots__bots": (
        BOTS | {"qwen2.5_7b_pass_rate": 0.2, "qwen3_30b_pass_rate": 0.8},
        [],
        "accuracy",
        False,
    ),
    "entropy__clipb": (
        QUESTION | {"ground_truth": "46"},
        ["algorithm.advantage_fn=clipv", "algorithm.advantage_fn_args.mu=0.0"],
        "accuracy",
        True,
    ),
    "bots__random": (BOTS, [], "accuracy", False),
    "bots__ref_eval_collect": (BOTS, [], "accuracy", False),  # mode explore
    "opd_gsm8k__opd_gsm8k": (QUESTION, [], "kl_divergence", True),
    "opd_gsm8k__opd_gsm8k_jsd": (QUESTION, [], "kl_divergence", True),
    "grpo_gsm8k_ruler__gsm8k_ruler": (QUESTION, [], "judge_success", False),
    "grpo_rubric_as_reward__rubric": (RUBRIC, [], "judge_success", False),
    "learn_to_ask__train": (
        TALK,
        ["explorer.rollout_model.engine_type=null"],  # vllm, which tests do without
        "action_score",
        True,
    ),
    "grpo_email_search__email_search": (
        SEARCH,
        [f"{INPUT}.taskset.workflow_args.max_turns=2"],
        "actual_turns",
        True,
    ),
}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", max_positions=4096)


def smaller(tmp_path: Path, model: Path, row: dict) -> list[str]:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for _ in range(4)))
    return [
        f"model.model_path={model}",
        f"checkpoint_root_dir={tmp_path / 'checkpoints'}",
        f"{INPUT}.taskset.path={rows}",
        f"{INPUT}.eval_tasksets=[]",
        "model.max_model_len=4096",
        "model.max_prompt_tokens=4000",
        "model.max_response_tokens=8",
        "algorithm.repeat_times=2",
        "buffer.batch_size=1",
        "buffer.train_batch_size=2",
        "buffer.total_steps=1",
        "synchronizer.sync_interval=1",
        "trainer.max_token_len_per_gpu=8192",
        "trainer.save_interval=0",
        "explorer.rollout_model.max_prompt_tokens=null",
        "explorer.rollout_model.max_response_tokens=null",
        "monitor.monitor_type=jsonl",
    ]


@pytest.mark.parametrize(
    "name",
    [
        name if number % 18 == 0 else pytest.param(name, marks=pytest.mark.acceptance)
        for number, name in enumerate(CASES)
    ],
)
def test_a_published_configuration_runs_a_step(name, tiny_model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRINITY_MODEL_PATH", str(tiny_model))
    monkeypatch.setenv("TRINITY_TASKSET_PATH", "rows.jsonl")
    monkeypatch.setenv("TRINITY_EVAL_TASKSET_PATH", "rows.jsonl")
    monkeypatch.setenv("DEFAULT_EMAIL_DB_PATH", str(tmp_path / "mails.db"))
    write_mailbox(tmp_path / "mails.db", [])
    row, further, metric, trains = CASES[name]
    settings = [*smaller(tmp_path, tiny_model, row), *further]
    if "auxiliary_models:" in (DATA / f"examples__{name}.yaml").read_text():
        settings += [f"{JUDGE}.model_path={tiny_model}", f"{JUDGE}.max_response_tokens=8"]

    result = trinity.run(
        load_config(DATA / f"examples__{name}.yaml", overrides=settings), local=True
    )

    assert result.status is RunStatus.FINISHED
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    metrics = {key: value for line in lines for key, value in json.loads(line).items()}
    assert math.isfinite(metrics["rollout/reward/mean"])
    assert metric is None or any(f"/{metric}/" in key for key in metrics)
    assert ("actor/loss" in metrics) is trains


def test_the_rewards_that_an_exploration_collects_stand_in_its_file(
    tiny_model, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = smaller(tmp_path, tiny_model, BOTS)
    config = load_config(DATA / "examples__bots__ref_eval_collect.yaml", overrides=settings)

    trinity.run(config, local=True)

    (line,) = Path("bots_ref_eval_log.jsonl").read_text().splitlines()
    noted = json.loads(line)
    assert (len(noted["rewards"]), noted["truth"]) == (2, "46")
