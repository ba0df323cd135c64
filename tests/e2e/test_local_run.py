"""A whole run in one process, on a real (tiny) model."""

from __future__ import annotations

import json

import pytest
import trinity
import yaml
from trinity.common.config import load_config
from trinity.extend.registry import Registry
from trinity.runtime import build
from trinity.runtime.record.result import RunStatus

pytestmark = pytest.mark.slow


def metrics_of(directory, role):
    lines = (directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["role"] == role]


def without_times(rows):
    return [
        {name: value for name, value in row.items() if "time/" not in name and "_s" not in name}
        for row in rows
    ]


def test_a_run_leaves_the_documented_files_and_a_model_that_loads_and_is_not_made_twice(
    config_dict, write_yaml, capsys
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    result = trinity.run(load_config(write_yaml(config_dict)), local=True)

    assert result.status is RunStatus.FINISHED
    names = {path.name for path in result.directory.iterdir()}
    assert {
        "run.json", "config.yaml", "plugins.json", "monitor", "plots", "global_step_2",
        "latest_checkpointed_iteration.txt",
    } <= names  # fmt: skip
    assert [row["step"] for row in metrics_of(result.directory, "explorer")] == [1, 2]
    assert [row["step"] for row in metrics_of(result.directory, "trainer")] == [1, 2]
    status = json.loads((result.directory / "run.json").read_text())
    assert (status["status"], status["trained_experiences"]) == ("finished", 32)
    folder = result.stages[-1].checkpoint / "actor" / "huggingface"
    assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size > 0
    assert AutoTokenizer.from_pretrained(folder).chat_template

    again = trinity.run(load_config(write_yaml(config_dict)), local=True)
    assert again.stages[-1].was_finished_before
    assert f"{result.directory} is finished" in " ".join(capsys.readouterr().out.split())


@pytest.mark.acceptance
def test_an_engine_has_weights_of_its_own_where_the_trainers_are_taken_away(
    config_dict, write_yaml, monkeypatch
) -> None:
    """It answers while they are away; its answers are the same."""
    given, make_engine, recorded = [], build.make_engine, []

    def noting(*args, module):
        given.append(module)
        return make_engine(*args, module=module)

    monkeypatch.setattr(build, "make_engine", noting)
    for name, is_off in (("here", False), ("away", True)):
        settings = config_dict | {"name": name, "trainer": {"param_offload": is_off}}
        result = trinity.run(load_config(write_yaml(settings)), local=True)
        recorded.append(without_times(metrics_of(result.directory, "trainer")))

    assert [module is None for module in given] == [False, True]
    assert recorded[0] == recorded[1]


@pytest.mark.acceptance
def test_two_seeds_sample_differently(config_dict, write_yaml) -> None:
    rewards = []
    for seed in (1, 2):
        config = config_dict | {"name": f"seed{seed}", "seed": seed}
        result = trinity.run(load_config(write_yaml(config)), local=True)
        rewards.append([row["actor/grad_norm"] for row in metrics_of(result.directory, "trainer")])

    assert rewards[0] != rewards[1]


def test_a_longer_run_goes_on_where_the_shorter_one_ended(config_dict, write_yaml) -> None:
    config_dict["buffer"]["total_epochs"] = 2
    whole = trinity.run(load_config(write_yaml(config_dict | {"name": "whole"})), local=True)
    config_dict["buffer"]["total_steps"] = 2
    trinity.run(load_config(write_yaml(config_dict | {"name": "parts"})), local=True)
    config_dict["buffer"]["total_steps"] = 4
    parts = trinity.run(load_config(write_yaml(config_dict | {"name": "parts"})), local=True)

    one = without_times(metrics_of(whole.directory, "trainer"))
    other = without_times(metrics_of(parts.directory, "trainer"))
    assert [row["step"] for row in other] == [1, 2, 3, 4]
    for left, right in zip(one, other, strict=True):
        assert left == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("critic", ["", pytest.param("own", marks=pytest.mark.acceptance)])
def test_stages_hand_their_model_on(critic, config_dict, write_yaml, tmp_path, tiny_model) -> None:
    messages = tmp_path / "sft.jsonl"
    chat = [{"role": "user", "content": "1 + 1 ="}, {"role": "assistant", "content": "2"}]
    messages.write_text("\n".join(json.dumps({"messages": chat}) for _ in range(8)))
    sft = {
        "stage_name": "sft",
        "mode": "train",
        "algorithm": {"algorithm_type": "sft", "optimizer": {"lr": 1e-3}},
        "buffer": {
            "train_batch_size": 4,
            "trainer_input": {
                "experience_buffer": {
                    "name": "sft",
                    "storage_type": "file",
                    "path": str(messages),
                    "format": {"prompt_type": "messages", "messages_key": "messages"},
                }
            },
        },
    }
    config_dict["stages"] = [sft, {"stage_name": "grpo", "mode": "both"}]
    if critic:
        config_dict["model"]["critic_model_path"] = str(tiny_model)

    result = trinity.run(load_config(write_yaml(config_dict)), local=True)

    assert [stage.status for stage in result.stages] == [RunStatus.FINISHED] * 2
    assert [stage.train_steps for stage in result.stages] == [2, 2]
    resolved = yaml.safe_load((result.stages[1].directory / "config.yaml").read_text())
    trained = str(result.stages[0].checkpoint / "actor" / "huggingface")
    assert resolved["model"]["model_path"] == trained
    assert resolved["explorer"]["rollout_model"]["model_path"] == trained
    assert resolved["model"]["critic_model_path"] == (str(tiny_model) if critic else trained)


def test_bench_evaluates_the_base_model_and_each_checkpoint(config_dict, write_yaml, rows) -> None:
    config_dict["trainer"] = {"save_interval": 1}
    trinity.run(load_config(write_yaml(config_dict)), local=True)
    taskset = config_dict["buffer"]["explorer_input"].pop("taskset")
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [taskset | {"repeat_times": 2}]

    result = trinity.run(load_config(write_yaml(config_dict | {"mode": "bench"})), local=True)

    evaluated = [
        row["step"]
        for row in metrics_of(result.directory, "explorer")
        if "bench/rows/reward/mean@2" in row
    ]
    assert evaluated == [0, 1, 2]


def test_two_monitors_show_what_was_trained(config_dict, write_yaml) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from trinity.monitor.tensorboard import TensorboardMonitor

    class Another(TensorboardMonitor):
        def __init__(self, *, directory, role, below: str):
            super().__init__(directory=directory / below, role=role)

    Registry("monitors", kind="monitor").register_module("another")(Another)
    config_dict["monitor"] = {
        "monitor_type": "tensorboard",
        "also": [{"monitor_type": "another", "monitor_args": {"below": "second"}}],
        "sample_interval": 2,
        "num_samples": 3,
    }

    result = trinity.run(load_config(write_yaml(config_dict)), local=True)

    for folder in ("tensorboard", "second/tensorboard"):
        events = EventAccumulator(str(result.directory / "monitor" / folder / "trainer")).Reload()
        assert len(events.Scalars("actor/loss")) == 2, folder
        assert events.Tags()["tensors"] == [f"samples/{n}" for n in range(3)], folder
        (event,) = events.Tensors("samples/1")
        assert event.step == 2
        assert "4 + 1 =" in event.tensor_proto.string_val[0].decode()
