"""Every algorithm gives the same numbers over Ray, its sides at work at once, as in one process."""

from __future__ import annotations

import json

import pytest
import trinity
from trinity.common.config import load_config
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.result import RunStatus
from trinity_testing.tiny import make_tiny_model

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

ON_ROLLOUTS = [
    "grpo", "grpo_verl", "dapo", "ppo", "reinforceplusplus", "rloo", "opmd", "asymre", "sppo",
    "topr", "cispo", "gspo", "sapo", "raft", "rec", "multi_step_grpo", "gigpo",
]  # fmt: skip
WITH_AN_EXPERT = ["mix", "mix_chord"]  # asked at a sync alone: nothing of theirs overlaps
WITH_A_TEACHER = ["on_policy_distill", "jsd"]
NUM_STEPS = 5


@REWARD_FUNCTIONS.register_module("letters_while_overlapping")
class ShareOfLetters(RewardFn):
    """Tells answers apart that a fresh model gives."""

    def __call__(self, response=None, **kwargs):
        return {"letters": sum(map(str.isalpha, response or "")) / 8}


def numbers_of(result):
    """Return every metric but times, by role and step."""
    rows: dict[tuple[str, int], dict[str, float]] = {}
    for row in read_metrics(result.directory / "monitor"):
        numbers = {
            name: value
            for name, value in row.items()
            if isinstance(value, float | int) and "time/" not in name and "perf/" not in name
        }
        rows.setdefault((row["role"], row["step"]), {}).update(numbers)
    return rows


def beside_s(result) -> list[float]:
    found = [row.get("time/trained_beside_s") for row in read_metrics(result.directory / "monitor")]
    return [seconds for seconds in found if seconds is not None]


@pytest.mark.parametrize("name", [*ON_ROLLOUTS, *WITH_AN_EXPERT, *WITH_A_TEACHER])
def test_its_numbers_are_those_of_one_process(
    config_dict, taskset, write_yaml, tmp_path, ray_cluster, name
) -> None:
    taskset["default_reward_fn_type"] = "letters_while_overlapping"
    config_dict["buffer"]["total_steps"] = NUM_STEPS
    config_dict["synchronizer"] = {"sync_offset": 1}
    config_dict["algorithm"] = {
        "algorithm_type": name,
        "repeat_times": 4,
        "optimizer": {"lr": 1e-3},
    }
    if name in WITH_AN_EXPERT:
        rows = [{"prompt": f"say {n}", "response": f"it {n}"} for n in range(3)]
        path = tmp_path / "expert.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        expert = {"storage_type": "file", "path": str(path), "format": {"prompt_type": "plaintext"}}
        config_dict["buffer"] |= {"batch_size": 1, "train_batch_size": 6}
        config_dict["buffer"]["trainer_input"] = {"auxiliary_buffers": {"sft_dataset": expert}}
        config_dict["algorithm"]["sample_strategy_args"] = {"expert_data_ratio": 0.25}
    if name in WITH_A_TEACHER:
        teacher = make_tiny_model(tmp_path / "teacher", seed=5)
        taskset["default_workflow_type"] = "on_policy_distill_workflow"
        config_dict["explorer"]["auxiliary_models"] = [{"model_path": str(teacher)}]

    runs = [
        trinity.run(load_config(write_yaml(config_dict | {"name": place})), local=place == "here")
        for place in ("here", "there")
    ]

    here, there = map(numbers_of, runs)
    assert [run.status for run in runs] == [RunStatus.FINISHED] * 2
    assert here.keys() == there.keys()
    assert len([key for key in here if key[0] == "trainer"]) >= NUM_STEPS - 1
    for key, numbers in here.items():
        assert there[key] == pytest.approx(numbers, rel=1e-5, abs=1e-7), key
    if name not in WITH_AN_EXPERT:
        assert sum(seconds > 0 for seconds in beside_s(runs[1])) >= NUM_STEPS - 2
