"""Each algorithm type as a run of two steps: from the file to the checkpoint."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
import trinity
from trinity.common.config import load_config
from trinity.errors import ConfigError, TrinityError
from trinity.runtime.record.result import RunStatus
from trinity.trainer.torch_trainer import TorchTrainer

FIRST = ["ppo", "opmd", "multi_step_grpo"]  # with a critic, of another package, of steps
ON_ROLLOUTS = [
    "grpo", "gspo", "m2po", "grpo_verl", "dapo", "reinforceplusplus", "rloo", "asymre", "sppo",
    "topr", "cispo", "sapo", "raft", "rec", "gigpo",
]  # fmt: skip
MORE = partial(pytest.param, marks=pytest.mark.acceptance)
PLAIN = {"prompt_type": "plaintext"}
ROWS = {
    "sft": {"prompt": "say", "response": "it"},
    "cpt": {"prompt": "a text of some words"},
    "dpo": {"prompt": "say", "chosen": "it", "rejected": "no"},
}


def run_of(config, write_yaml, **overrides):
    return trinity.run(load_config(write_yaml(config | overrides)), local=True)


def metrics_of(result):
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if "actor/loss" in row]


def rows_file(tmp_path, schema, *, count=8):
    path = tmp_path / f"{schema}.jsonl"
    path.write_text(
        "".join(
            json.dumps({key: f"{text} {number}" for key, text in ROWS[schema].items()}) + "\n"
            for number in range(count)
        )
    )
    return str(path)


@pytest.mark.parametrize(
    "name",
    [*FIRST, *map(MORE, ON_ROLLOUTS)],
)
def test_an_algorithm_on_rollouts_trains_two_steps(config_dict, write_yaml, name) -> None:
    config_dict["buffer"]["total_steps"] = 2
    config_dict["algorithm"] = {"algorithm_type": name, "repeat_times": 4}

    result = run_of(config_dict, write_yaml)

    assert result.status is RunStatus.FINISHED
    rows = metrics_of(result)
    assert len(rows) == 2
    assert all(math.isfinite(row["actor/loss"]) for row in rows)
    assert ("critic/vf_loss" in rows[0]) is (name == "ppo")


@pytest.mark.parametrize("name", ["sft", MORE("cpt"), "dpo"])
def test_an_algorithm_on_a_file_trains_two_steps_without_an_engine(
    config_dict, write_yaml, tmp_path, name
) -> None:
    store = {"storage_type": "file", "path": rows_file(tmp_path, name), "format": PLAIN}
    config_dict |= {"mode": "train", "algorithm": {"algorithm_type": name}}
    config_dict["buffer"] = {"train_batch_size": 4, "trainer_input": {"experience_buffer": store}}

    result = run_of(config_dict, write_yaml)

    rows = metrics_of(result)
    assert result.status is RunStatus.FINISHED
    assert len(rows) == 2
    assert rows[0]["perf/num_samples"] == (8 if name == "dpo" else 4)  # a pair is two rows


@pytest.mark.parametrize(
    ("asked", "num_steps"), [({"total_epochs": 3}, 6), ({"total_steps": 5}, 5)]
)
def test_the_length_that_a_file_is_given_is_the_runs_and_the_learning_rate_follows(
    config_dict, write_yaml, tmp_path, asked, num_steps
) -> None:
    store = {"storage_type": "file", "path": rows_file(tmp_path, "sft"), "format": PLAIN} | asked
    optimizer = {"lr": 1e-3, "lr_scheduler_type": "linear"}
    config_dict |= {"mode": "train", "algorithm": {"algorithm_type": "sft", "optimizer": optimizer}}
    config_dict["buffer"] = {"train_batch_size": 4, "trainer_input": {"experience_buffer": store}}

    rows = metrics_of(run_of(config_dict, write_yaml))

    assert len(rows) == num_steps
    falls = [row["actor/lr"] / 1e-3 for row in rows]
    assert falls == pytest.approx([1 - n / num_steps for n in range(num_steps)], abs=0.01)


@pytest.mark.parametrize("name", ["mix", MORE("mix_chord")])
def test_an_algorithm_with_an_expert_reads_both_buffers(
    config_dict, write_yaml, tmp_path, name
) -> None:
    expert = {"storage_type": "file", "path": rows_file(tmp_path, "sft", count=3), "format": PLAIN}
    buffer = config_dict["buffer"]
    buffer |= {"total_steps": 2, "batch_size": 1, "train_batch_size": 6}
    buffer["trainer_input"] = {"auxiliary_buffers": {"sft_dataset": expert}}
    config_dict["algorithm"] = {
        "algorithm_type": name,
        "repeat_times": 4,
        "sample_strategy_args": {"expert_data_ratio": 0.25},
    }

    result = run_of(config_dict, write_yaml)

    rows = metrics_of(result)
    assert len(rows) == 2  # 4 rows of the policy's own each, and 2 of the expert
    assert rows[1]["perf/num_samples"] == 6
    assert rows[1]["actor/expert/sft_loss" if name == "mix" else "actor/expert/sft_phi_loss"] > 0
    state = json.loads((result.stages[-1].checkpoint / "state.json").read_text())
    assert state["strategy"]["expert_buffer"]["position"] == 4  # round the 3 rows, and one more


@pytest.mark.parametrize(
    ("name", "missing"),
    [("on_policy_distill", "teacher"), ("jsd", "teacher"), ("mix", "auxiliary_buffers")],
)
def test_an_algorithm_that_lacks_a_part_says_so_before_it_starts(
    config_dict, write_yaml, name, missing
) -> None:
    config_dict["algorithm"] = {"algorithm_type": name}

    with pytest.raises(ConfigError, match=missing):
        run_of(config_dict, write_yaml)


@pytest.fixture
def fails_at(monkeypatch):
    """Let the trainer fail at an optimizer step, once."""
    train_step = TorchTrainer.train_step
    due: set[int] = set()

    def failing(self, experiences, *, step):
        if step in due:
            due.remove(step)
            raise TrinityError("on purpose")
        return train_step(self, experiences, step=step)

    monkeypatch.setattr(TorchTrainer, "train_step", failing)
    return due.add


@pytest.mark.acceptance
@pytest.mark.parametrize("name", ["ppo", "mix"])
def test_a_run_that_failed_goes_on_with_the_rows_that_it_held(
    config_dict, write_yaml, tmp_path, fails_at, name
) -> None:
    expert = {"storage_type": "file", "path": rows_file(tmp_path, "sft", count=5), "format": PLAIN}
    config_dict["algorithm"] = {"algorithm_type": name, "repeat_times": 4}
    config_dict["buffer"] |= {"total_steps": 3, "batch_size": 1, "train_batch_size": 4}
    if name == "mix":
        config_dict["buffer"] |= {"train_batch_size": 8}
        config_dict["buffer"]["trainer_input"] = {"auxiliary_buffers": {"sft_dataset": expert}}
    whole = metrics_of(run_of(config_dict, write_yaml, name="whole"))
    fails_at(3)

    with pytest.raises(TrinityError, match="on purpose"):
        run_of(config_dict, write_yaml, name="parts")
    result = run_of(config_dict, write_yaml, name="parts")

    numbers = [
        {key: row[key] for key in row if key.startswith(("actor/", "critic/"))}
        for row in metrics_of(result)
    ]
    assert len(numbers) == len(whole) == 3
    for got, expected in zip(numbers, whole, strict=True):
        assert got == pytest.approx({key: expected[key] for key in got}, rel=1e-5, abs=1e-7)
