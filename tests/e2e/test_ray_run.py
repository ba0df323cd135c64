"""Whole runs over Ray: the numbers, files and messages of a run in one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import trinity
from trinity.algorithm.policy_loss_fn import POLICY_LOSS_FN, PolicyLossFn
from trinity.common.config import load_config
from trinity.errors import TrinityError
from trinity.runtime.record.result import RunStatus
from trinity.runtime.record.sample_files import places_of, read_step

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@POLICY_LOSS_FN.register_module("third_time_unlucky")
class ThirdTimeUnlucky(PolicyLossFn):
    """Fails in the third micro-batch."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self, logprob, **kwargs):
        self.num_calls += 1
        if self.num_calls == 3:
            raise ValueError("unlucky")
        return logprob.mean(), {}


def a_run(config, write_yaml, name, *, local):
    return trinity.run(load_config(write_yaml(config | {"name": name})), local=local)


def rows_of(result):
    """Return the metrics but for times, by role and step: where sides overlap, lines do too."""
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    rows = [
        {name: value for name, value in json.loads(line).items() if "time/" not in name}
        for line in lines
    ]
    return sorted(rows, key=lambda row: (row["role"], row["step"], "eval" in str(row)))


def steps_that_trained_beside(result):
    """Return the explore steps during which an optimizer step was made."""
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    spans = {row["step"]: row for row in map(json.loads, lines) if "time/trained_beside_s" in row}
    return [step for step, row in spans.items() if row["time/trained_beside_s"] > 0.01]


def samples_of(result):
    """Return what each optimizer step trained, as it is kept for people."""
    steps = [read_step(place) for place in places_of(result.directory)]
    return [[(row.eid, row.tokens.tolist(), row.mask.tolist()) for row in step] for step in steps]


def scores_of(stage):
    evaluation = stage.evaluation or {}
    return {name: value for name, value in evaluation.items() if "time/" not in name}


def weights_of(result):
    from safetensors.torch import load_file

    return load_file(result.stages[-1].checkpoint / "actor/huggingface/model.safetensors")


def rooms_left():
    from ray.util import list_named_actors

    return list_named_actors(all_namespaces=True)


def demonstrations_in(folder):
    """Return the storage of eight demonstrations, for mode train."""
    turns = [{"role": "user", "content": "say a"}, {"role": "assistant", "content": "a"}]
    (folder / "sft.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 8)
    return {
        "storage_type": "file",
        "path": str(folder / "sft.jsonl"),
        "format": {"prompt_type": "messages", "messages_key": "messages"},
    }


@pytest.fixture
def train_only(config_dict, tmp_path):
    """Return two steps of mode train: the fewest rooms to start."""
    storage = demonstrations_in(tmp_path)
    buffer = {"train_batch_size": 4, "trainer_input": {"experience_buffer": storage}}
    buffer["total_epochs"] = 1
    return config_dict | {"mode": "train", "algorithm": {"algorithm_type": "sft"}, "buffer": buffer}


@pytest.fixture
def long_config(config_dict, taskset):
    """Return 10 steps over two tasksets, with evaluations of two others on the way."""
    explorer_input = config_dict["buffer"]["explorer_input"]
    del explorer_input["taskset"]
    reward = {"default_reward_fn_type": "format_reward"}
    explorer_input["tasksets"] = [taskset | {"name": "one"}, taskset | {"name": "other"}]
    explorer_input["eval_tasksets"] = [
        taskset | reward | {"name": "first", "repeat_times": 2},
        taskset | reward | {"name": "second"},
    ]
    config_dict["buffer"]["total_steps"] = 10
    config_dict["explorer"] |= {"eval_interval": 4}
    config_dict["synchronizer"] = {"sync_interval": 2, "sync_offset": 1}
    return config_dict


def test_ten_steps_give_the_numbers_and_weights_of_a_run_in_one_process(
    long_config, write_yaml, ray_cluster
) -> None:
    here = a_run(long_config, write_yaml, "here", local=True)
    there = a_run(long_config, write_yaml, "there", local=False)

    assert there.status is RunStatus.FINISHED
    assert len(steps_that_trained_beside(there)) >= 8  # all but the first, and perhaps one
    assert steps_that_trained_beside(here) == []
    own, others = rows_of(here), rows_of(there)
    assert len(own) == len(others) > 25
    for one, other in zip(own, others, strict=True):
        assert one.keys() == other.keys()
        assert other == pytest.approx(one, abs=1e-5), (one["role"], one["step"])
    assert any("eval/second/reward/mean@1" in row for row in others)
    weights, there_weights = weights_of(here), weights_of(there)
    for name, weight in weights.items():
        assert (weight - there_weights[name]).abs().max() <= 1e-5
    assert samples_of(there) == samples_of(here)
    assert rooms_left() == []


@pytest.mark.acceptance
def test_an_error_in_a_room_is_told_as_in_one_process_and_what_was_trained_is_saved(
    train_only, write_yaml, ray_cluster
) -> None:
    train_only["algorithm"]["policy_loss_fn"] = "third_time_unlucky"
    train_only["buffer"]["total_epochs"] = 2  # four steps
    texts, statuses = [], []
    root = Path(train_only["checkpoint_root_dir"])
    for name, local in (("here", True), ("there", False)):
        with pytest.raises(TrinityError) as caught:
            a_run(train_only, write_yaml, name, local=local)
        texts.append(str(caught.value))
        statuses.append(json.loads((root / "e2e" / name / "run.json").read_text()))

    first_sentences = [text.partition(" Correct that")[0] for text in texts]
    assert first_sentences[0] == first_sentences[1]
    assert "failed: ValueError: unlucky at" in texts[1]
    assert "test_ray_run.py" in texts[1]
    assert [status["status"] for status in statuses] == ["failed", "failed"]
    assert statuses[0]["train_steps"] == statuses[1]["train_steps"] > 0
    assert rooms_left() == []


@pytest.mark.acceptance
def test_a_room_that_cannot_be_built_ends_the_run_with_its_message(
    train_only, write_yaml, tmp_path, tiny_model, ray_cluster
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    (broken / "model.safetensors").write_bytes(b"no weights")
    train_only["model"]["model_path"] = str(broken)

    with pytest.raises(TrinityError, match=r"the start of the run failed: SafetensorError"):
        a_run(train_only, write_yaml, "there", local=False)

    assert rooms_left() == []


@pytest.mark.acceptance
def test_a_run_goes_on_over_ray_and_a_finished_one_starts_none(
    config_dict, write_yaml, ray_cluster, monkeypatch
) -> None:
    config_dict["buffer"]["total_epochs"] = 2
    whole = a_run(config_dict, write_yaml, "whole", local=True)
    config_dict["buffer"]["total_steps"] = 2
    a_run(config_dict, write_yaml, "parts", local=False)
    config_dict["buffer"]["total_steps"] = 4
    parts = a_run(config_dict, write_yaml, "parts", local=False)
    monkeypatch.setattr("trinity.runtime.ray.cluster.cluster", None)  # cannot be called
    again = a_run(config_dict, write_yaml, "parts", local=False)

    assert len(rows_of(parts)) == len(rows_of(whole))
    for one, other in zip(rows_of(whole), rows_of(parts), strict=True):
        assert other == pytest.approx(one, abs=1e-5), (one["role"], one["step"])
    assert again.stages[-1].was_finished_before


@pytest.mark.acceptance
def test_stages_of_every_mode_hand_their_model_on(
    config_dict, write_yaml, tmp_path, ray_cluster
) -> None:
    demonstrations = demonstrations_in(tmp_path)
    explored = {"storage_type": "file", "path": str(tmp_path / "explored.jsonl")}
    tasks = config_dict["buffer"]["explorer_input"]
    tasks["eval_tasksets"] = [tasks["taskset"] | {"name": "held_out"}]
    config_dict["stages"] = [
        {
            "stage_name": "sft",
            "mode": "train",
            "algorithm": {"algorithm_type": "sft", "optimizer": {"lr": 1e-3}},
            "buffer": {
                "train_batch_size": 4,
                "trainer_input": {"experience_buffer": demonstrations},
            },
        },
        {
            "stage_name": "look",
            "mode": "explore",
            "buffer": config_dict["buffer"] | {"trainer_input": {"experience_buffer": explored}},
        },
        {"stage_name": "judge", "mode": "bench"},
    ]

    there = a_run(config_dict, write_yaml, "there", local=False)
    lines = (tmp_path / "explored.jsonl").read_text().splitlines()
    (tmp_path / "explored.jsonl").unlink()
    here = a_run(config_dict, write_yaml, "here", local=True)

    assert [stage.status for stage in there.stages] == [RunStatus.FINISHED] * 3
    assert [row["step"] for row in rows_of(there.stages[0])] == [1, 2]
    for one, other in zip(rows_of(here.stages[0]), rows_of(there.stages[0]), strict=True):
        assert other == pytest.approx(one, abs=1e-5)
    assert len(lines) == 32
    for one, other in zip(here.stages, there.stages, strict=True):
        assert scores_of(other) == pytest.approx(scores_of(one), abs=1e-5)
        assert (other.explore_steps, other.train_steps) == (one.explore_steps, one.train_steps)
    assert rooms_left() == []
