"""Algorithms with parts of their own over Ray: a critic, an expert's file, pairs of a file."""

from __future__ import annotations

import json

import pytest
import trinity
from trinity.common.config import load_config
from trinity.runtime.record.result import RunStatus

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PLAIN = {"prompt_type": "plaintext"}


def rows_file(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"storage_type": "file", "path": str(path), "format": PLAIN}


def with_a_critic_and_an_expert(config, folder):
    expert = rows_file(folder / "expert.jsonl", *[{"prompt": "a", "response": "b"}] * 3)
    config["buffer"] |= {"total_steps": 2, "batch_size": 1, "train_batch_size": 6}
    config["buffer"]["trainer_input"] = {"auxiliary_buffers": {"sft_dataset": expert}}
    config["algorithm"] = {
        "algorithm_type": "mix",
        "advantage_fn": "ppo",  # which brings the critic
        "repeat_times": 4,
        "sample_strategy_args": {"expert_data_ratio": 0.25},
    }


def with_pairs(config, folder):
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
    pairs = rows_file(folder / "pairs.jsonl", *[pair] * 8)
    config |= {"mode": "train", "algorithm": {"algorithm_type": "dpo"}}
    config["buffer"] = {"train_batch_size": 4, "trainer_input": {"experience_buffer": pairs}}


def numbers_of(result):
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        {name: value for name, value in row.items() if name.startswith(("actor/", "critic/"))}
        for row in rows
        if "actor/loss" in row
    ]


@pytest.mark.parametrize(
    "change",
    [with_a_critic_and_an_expert, with_pairs],
)
@pytest.mark.acceptance
def test_it_trains_as_in_one_process(
    config_dict, write_yaml, tmp_path, ray_cluster, change
) -> None:
    change(config_dict, tmp_path)

    runs = []
    for name, local in (("here", True), ("there", False)):
        config = load_config(write_yaml(config_dict | {"name": name}))
        runs.append(trinity.run(config, local=local))

    assert [run.status for run in runs] == [RunStatus.FINISHED] * 2
    here, there = map(numbers_of, runs)
    assert len(here) == len(there) == 2
    for own, remote in zip(here, there, strict=True):
        assert remote == pytest.approx(own, rel=1e-4, abs=1e-6)
